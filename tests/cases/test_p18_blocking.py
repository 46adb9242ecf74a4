"""A handler that blocks: a plain `def` runs off the loop, and heartbeats go on."""

import threading
import time

import pytest

from amqp_agents import agent
from tests.cases.checks import canary
from tests.cases.stage import Done, Place, Work, message, on_stage, until

pytestmark = pytest.mark.rabbitmq


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_plain_function_may_block_for_longer_than_the_heartbeat(
    place: Place, concurrency: int
) -> None:
    runs: list[int] = []
    threads: set[str] = set()

    @agent("work", concurrency=concurrency)
    def work(given: Work) -> Done:
        threads.add(threading.current_thread().name)
        runs.append(given.n)
        if given.n:
            time.sleep(7)
        return Done(n=given.n)

    async with on_stage(place, work, heartbeat_seconds=2) as stage:
        sent = [message("work", n) for n in range(1, concurrency + 1)]
        for each in sent:
            await stage.caller.publish(each)
        await until(
            lambda: all(stage.journal.count("handled", m.message_id) == 1 for m in sent), "done"
        )
        await canary(stage, "work")
        assert sorted(runs) == [0, *range(1, concurrency + 1)]
        assert stage.broker.connections == 2
        assert stage.counted("lost_settlements_total", agent="work") == 0
        assert "MainThread" not in threads


async def test_two_plain_functions_block_neither_each_other_nor_a_coroutine(place: Place) -> None:
    gate = threading.Event()

    @agent("blocking", concurrency=20)
    def blocking(given: Work) -> None:
        gate.wait(10)

    @agent("quick")
    async def quick(given: Work) -> None: ...

    async with on_stage(place, blocking, quick) as stage:
        for _ in range(20):
            await stage.caller.publish(message("blocking", 1))
        await until(lambda: stage.counted("handlings", agent="blocking") == 20, "all blocked")
        await canary(stage, "quick")
        gate.set()
        await until(lambda: stage.counted("handlings", agent="blocking") == 0, "all done")
        await canary(stage, "blocking")
