"""No worker takes the whole backlog: each agent has its own limit, and keeps it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from amqp_agents import AgentApp, agent
from amqp_agents.agent import DEFAULT_CONCURRENCY, Agent
from amqp_agents.errors import ConfigurationError
from tests.cases.stage import Place, Stage, Watched, Work, message, on_stage, until
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq


class Running:
    """How many handlers run at once, now and at most."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0
        self.gate = asyncio.Event()

    async def work(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gate.wait()
        await asyncio.sleep(0)
        self.now -= 1
        self.done += 1


async def backlog(stage: Stage, name: str, count: int, size: int = 20_000) -> None:
    big = "x" * size
    window = asyncio.Semaphore(100)

    async def send() -> None:
        async with window:
            await stage.caller.publish(message(name, metadata={"fill": big}))

    await asyncio.gather(*(send() for _ in range(count)))


@asynccontextmanager
async def second_worker(stage: Stage, running: Running) -> AsyncIterator[Watched]:
    broker = Watched(stage.settings, name="second")
    await broker.connect(timeout_seconds=10)
    serving = app_of(running).serving(broker, stage.settings)
    await serving.start()
    try:
        yield broker
    finally:
        running.gate.set()
        await serving.drain(5)
        await broker.close()


def agent_of(running: Running) -> object:
    @agent("work")
    async def work(given: Work) -> None:
        await running.work()

    return work


def app_of(running: Running) -> AgentApp:
    return AgentApp([agent_of(running)])  # type: ignore[list-item]


async def test_two_workers_share_a_backlog_within_the_default_limit(place: Place) -> None:
    first, second = Running(), Running()
    count = 1000
    async with on_stage(place, agent_of(first), start=False) as stage:
        await backlog(stage, "work", count)
        await stage.start()
        async with second_worker(stage, second) as other:
            limit = DEFAULT_CONCURRENCY
            await until(lambda: (first.now, second.now) == (limit, limit), "both at their limit")
            handed_over = stage.broker.deliveries.total() + other.deliveries.total()
            assert handed_over == 2 * limit  # unsettled is never more than the prefetch
            assert await stage.depth("agent.work") == count - 2 * limit
            first.gate.set()
            second.gate.set()
            await until(lambda: first.done + second.done == count, "all done", 30)
            assert first.most <= limit
            assert second.most <= limit
            assert min(first.done, second.done) > count // 10


@pytest.mark.parametrize("concurrency", [1, 2, 7, 30])
async def test_a_limit_that_is_set_is_kept(place: Place, concurrency: int) -> None:
    running = Running()

    @agent("work", concurrency=concurrency)
    async def work(given: Work) -> None:
        await running.work()

    async with on_stage(place, work, start=False) as stage:
        await backlog(stage, "work", 50, size=10)
        await stage.start()
        await until(lambda: running.now == concurrency, "at its limit")
        assert stage.broker.deliveries.total() == concurrency
        running.gate.set()
        await until(lambda: running.done == 50, "all done")
        assert running.most == concurrency


async def test_two_agents_of_one_app_have_a_limit_each(place: Place) -> None:
    one, three = Running(), Running()

    @agent("one", concurrency=1)
    async def single(given: Work) -> None:
        await one.work()

    @agent("three", concurrency=3)
    async def triple(given: Work) -> None:
        await three.work()

    async with on_stage(place, single, triple, start=False) as stage:
        await backlog(stage, "one", 20, size=10)
        await backlog(stage, "three", 20, size=10)
        await stage.start()
        await until(lambda: (one.now, three.now) == (1, 3), "at their limits")
        assert stage.broker.deliveries.total() == 4
        one.gate.set()
        three.gate.set()
        await until(lambda: (one.done, three.done) == (20, 20), "all done")
        assert (one.most, three.most) == (1, 3)


async def test_the_limit_holds_after_a_lost_connection(place: Place) -> None:
    running = Running()

    @agent("work", concurrency=2)
    async def work(given: Work) -> None:
        await running.work()

    async with Proxy(place.port) as proxy:
        url = proxy.url(place.url)
        async with on_stage(place, work, worker_url=url, start=False) as stage:
            await backlog(stage, "work", 10, size=10)
            await stage.start()
            await until(lambda: running.now == 2, "at its limit")
            proxy.reset()
            await until(lambda: stage.broker.deliveries.total() == 4, "delivered again")
            assert running.most == 2  # what was redelivered waits for those that still run
            running.gate.set()
            await until(lambda: running.done == 12, "all done")
            assert running.most == 2


@pytest.mark.parametrize("concurrency", [0, -1, 65_536, 1.5, "8", None, True])
def test_no_limit_is_no_option(concurrency: object) -> None:
    with pytest.raises(ConfigurationError, match="concurrency"):
        Agent("work", concurrency=concurrency)  # type: ignore[arg-type]
