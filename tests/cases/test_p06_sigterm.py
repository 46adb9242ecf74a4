"""SIGTERM during work: what runs is finished and acked, the rest goes back, nothing hangs."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqp_agents import Client, Outgoing, RabbitMQBroker, connect
from amqp_agents.topology.names import inbox
from tests.cases.command import Process, environment
from tests.cases.stage import Place, until
from tests.cases.workers import Job, app
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq


def worker(place: Place, *, grace: float = 30, url: str | None = None, **env: str) -> Process:
    arguments = ("run", "--grace", str(grace), "tests.cases.workers:app")
    return Process("-m", "amqp_agents", *arguments, environment=environment(place, url, **env))


@asynccontextmanager
async def caller(place: Place) -> AsyncIterator[Client]:
    broker = RabbitMQBroker(place.settings(), name="admin")
    await broker.connect(timeout_seconds=10)
    await broker.apply(app.topology())
    await broker.close()
    async with connect(settings=place.settings(), name="caller") as client:
        yield client


async def empty(client: Client, name: str) -> None:
    async def holds() -> bool:
        return await client.broker.depth(inbox(name)) == 0

    await until(holds, f"{name} empty")


def jobs(process: Process, what: str) -> list[int]:
    return sorted(int(line.split()[1]) for line in process.lines if line.startswith(f"{what} "))


@pytest.mark.parametrize("name", ["steady", "threaded"])
async def test_running_work_is_finished_and_the_rest_goes_back(place: Place, name: str) -> None:
    async with caller(place) as client:
        async with worker(place) as first:
            await first.says("ready")
            calls = [
                asyncio.create_task(client.request(name, Job(n=n, seconds=2), timeout_seconds=60))
                for n in range(10)
            ]
            await first.says("began", 5)
            first.signal(signal.SIGTERM)
            signalled = time.monotonic()
            assert await first.ended(10) == 0
            assert time.monotonic() - signalled < 4
            begun, done = jobs(first, "began"), jobs(first, "did")
            assert begun == done
            assert len(done) == 5
            finished, waiting = await asyncio.wait(calls, timeout=1)
            assert sorted(task.result()["n"] for task in finished) == done
            assert await client.broker.depth(inbox(name)) == 5
        async with worker(place) as second:
            assert len(await asyncio.wait_for(asyncio.gather(*waiting), 20)) == 5
            assert sorted(done + jobs(second, "did")) == list(range(10))
            await empty(client, name)
            second.signal()
            assert await second.ended(5) == 0
        letters = await client.broker.depth(f"agent.{name}.dlq")
        assert letters == 0


@pytest.mark.parametrize("name", ["steady", "threaded"])
async def test_the_grace_period_ends_what_does_not_end(place: Place, name: str) -> None:
    async with caller(place) as client, worker(place, grace=1) as process:
        await process.says("ready")
        await client.publish(Outgoing(Job(n=1, seconds=120), to=name))
        await process.says("began")
        process.signal()
        signalled = time.monotonic()
        assert await process.ended(6) == 0
        assert 0.9 < time.monotonic() - signalled < 3
        assert "did 1" not in process.lines

        async def back() -> bool:
            return await client.broker.depth(inbox(name)) == 1

        await until(back, "handed back")


@pytest.mark.parametrize("numbers", [(15, 15), (2, 2), (15, 2)])
async def test_a_second_signal_ends_it_at_once(place: Place, numbers: tuple[int, ...]) -> None:
    async with caller(place) as client, worker(place) as process:
        await process.says("ready")
        await client.publish(Outgoing(Job(n=1, seconds=120), to="steady"))
        await process.says("began")
        for number in numbers:
            process.signal(number)
            await asyncio.sleep(0.3)
        assert await process.ended(3) in (0, 1)

        async def back() -> bool:
            return await client.broker.depth(inbox("steady")) == 1

        await until(back, "handed back")


@pytest.mark.parametrize("fault", ["refused", "black_hole", "stall", "half_open"])
@pytest.mark.parametrize("busy", [True, False])
async def test_an_unreachable_broker_holds_no_worker_back(
    place: Place, fault: str, busy: bool
) -> None:
    async with caller(place) as client, Proxy(place.port) as proxy:
        async with worker(place, grace=1, url=proxy.url(place.url)) as process:
            await process.says("ready")
            if busy:
                await client.publish(Outgoing(Job(n=1, seconds=120), to="steady"))
                await process.says("began")
            if fault == "refused":
                proxy.refuse()
                proxy.reset()
            else:
                getattr(proxy, fault)()
            process.signal()
            signalled = time.monotonic()
            assert await process.ended(8) in (0, 1)
            assert time.monotonic() - signalled < 3.2
        proxy.heal()


async def test_heartbeats_go_on_while_it_drains(place: Place) -> None:
    """Work that lasts longer than two missed heartbeats is acked all the same."""
    async with caller(place) as client:
        async with worker(place, AMQP_AGENTS_HEARTBEAT_SECONDS="1") as process:
            await process.says("ready")
            await client.publish(Outgoing(Job(n=1, seconds=5), to="steady"))
            await process.says("began")
            process.signal()
            assert await process.ended(9) == 0
            assert process.count("did 1") == 1
            assert not [line for line in process.lines if "connection_lost" in line]
        await empty(client, "steady")


async def test_a_signal_before_it_serves_ends_it(place: Place) -> None:
    async with Proxy(place.port) as proxy:
        proxy.black_hole()
        async with worker(place, url=proxy.url(place.url)) as process:
            await until(lambda: proxy.counters.connections > 0, "it connects")
            process.signal()
            assert await process.ended(4) in (0, 1)


async def test_no_signal_and_no_work_is_no_exit(place: Place) -> None:
    async with caller(place) as client, worker(place) as process:
        await process.says("ready")
        answer: Any = await client.request("steady", Job(n=4), timeout_seconds=5)
        assert answer == {"n": 4}
        process.signal(signal.SIGINT)
        assert await process.ended(5) == 0
