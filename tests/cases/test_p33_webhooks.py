"""A callback address cannot be used to reach inside."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from amqp_agents import AgentMessage, ErrorCode, agent
from amqp_agents.errors import PermissionDeniedError
from tests.cases.stage import Done, Place, Work, message, on_stage

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.xfail(strict=True, reason="needs: webhook callbacks"),
]

INSIDE = [
    "http://169.254.169.254/latest/",
    "http://127.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://0.0.0.0:{port}/",
    "http://2130706433:{port}/",
    "http://user:pass@127.0.0.1:{port}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/",
]


class Listener:
    hits = 0
    port = 0


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    found = Listener()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.hits += 1
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("url", INSIDE)
async def test_an_address_inside_is_refused_before_anything_is_sent(
    place: Place, listener: Listener, url: str
) -> None:
    @agent("work")
    async def work(given: Work, sent: AgentMessage) -> Done:
        return Done(n=given.n)

    async with on_stage(place, work) as stage:
        sent = message(
            "work",
            1,
            message_type="request",
            callback_type="webhook",
            reply_to=url.format(port=listener.port),
        )
        with pytest.raises(PermissionDeniedError) as refused:
            await stage.caller.publish(sent)
        assert refused.value.code is ErrorCode.PERMISSION_DENIED
        assert listener.hits == 0
