"""Draining while RabbitMQ does not answer any more."""

import asyncio
from urllib.parse import urlsplit

import pytest

from tests.integration.cli.program import Program
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq

GRACE_SECONDS = 2.0


@pytest.mark.parametrize("fault", ["black_hole", "refuse", "cut_and_refuse"])
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_a_dead_broker_never_holds_up_the_end(
    program: Program, fault: str, busy: bool
) -> None:
    url = program.environment["AMQP_AGENTS_URL"]
    async with Proxy(urlsplit(url).port or 5672) as proxy:
        running = await asyncio.to_thread(
            program.start,
            "run",
            "--declare",
            "my_agents:app",
            f"--grace={GRACE_SECONDS}",
            env={"AMQP_AGENTS_URL": proxy.url(url)},
        )
        await asyncio.to_thread(running.until, "ready")
        if busy:
            long = '{"text": "long", "seconds": 600}'
            await asyncio.to_thread(program, "publish", long, "--to", "quality_agent")
            await asyncio.to_thread(running.until, "started long")
        if fault == "cut_and_refuse":
            proxy.refuse()
            proxy.cut()
            await asyncio.to_thread(running.until, "connection_lost")
        else:
            getattr(proxy, fault)()
        running.signal()
        code, seconds = await asyncio.to_thread(running.ended)
    assert code == 0, running.said
    assert seconds < GRACE_SECONDS + 2
