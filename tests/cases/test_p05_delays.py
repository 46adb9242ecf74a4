"""A long delay holds nobody else back, and no delay lives in memory only."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from amqp_agents import Context, DependencyFailedError, RetryLater, RetryPolicy, agent
from amqp_agents.topology.names import LOST, delay_level
from tests.cases.checks import canary
from tests.cases.stage import Place, Stage, message, on_stage, until
from tests.cases.stage import Work as Base

pytestmark = pytest.mark.rabbitmq


class Work(Base):
    """What is to fail once, how, and for how long it says to wait."""

    wait: float = 0
    how: str = "suggested"


class Advised(DependencyFailedError):  # noqa: N818 - it carries advice
    def __init__(self, seconds: float) -> None:
        super().__init__("not now")
        self.suggested_retry_after = seconds  # type: ignore[assignment]


WAITS = {"suggested": Advised, "later": RetryLater}


class Times:
    def __init__(self) -> None:
        self.at: dict[int, list[float]] = {}

    def waited(self, n: int) -> float:
        first, second = self.at[n][:2]
        return second - first


@asynccontextmanager
async def waiting_agent(place: Place, times: Times) -> AsyncIterator[Stage]:
    @agent("work")
    async def work(given: Work, context: Context) -> None:
        times.at.setdefault(given.n, []).append(time.monotonic())
        if given.wait and len(times.at[given.n]) == 1:
            raise WAITS[given.how](given.wait)

    @agent("backoff", retry=RetryPolicy(max_attempts=9, base_seconds=60))
    async def backoff(given: Work) -> None:
        if given.n:
            raise ValueError("again in a minute")

    @agent("quick", retry=RetryPolicy(max_attempts=3, base_seconds=1))
    async def quick(given: Work) -> None:
        times.at.setdefault(given.n, []).append(time.monotonic())
        if given.n and len(times.at[given.n]) == 1:
            raise ValueError("again in a second")

    @agent("gone")
    async def gone(given: Work) -> None:
        raise Advised(3)

    async with on_stage(place, work, backoff, quick, gone) as stage:
        yield stage


async def send(stage: Stage, n: int, wait: float, how: str = "suggested") -> None:
    payload = {"n": n, "wait": wait, "how": how}
    await stage.caller.publish(message("work", payload=payload, ttl=None))


def within(waited: float, wanted: float) -> bool:
    return wanted - 0.05 <= waited <= max(wanted * 1.2, wanted + 1)


@pytest.mark.parametrize("how", ["suggested", "later"])
async def test_short_delays_pass_long_ones(place: Place, how: str) -> None:
    """Long ones first, then all the short ones at once."""
    times = Times()
    short = {10: 1, 11: 2, 12: 3, 13: 4, 14: 1}
    async with waiting_agent(place, times) as stage:
        for n, wait in {1: 60, 2: 30, 3: 3600, 4: 129_600, 5: 17}.items():
            await send(stage, n, wait, how)
        await until(lambda: stage.counted("deliveries_total", **RETRIED) == 5, "the long ones")
        await asyncio.gather(*(send(stage, n, wait, how) for n, wait in short.items()))
        await until(lambda: all(len(times.at.get(n, ())) == 2 for n in short), "the short ones")
        for n, wanted in short.items():
            assert within(times.waited(n), wanted), (wanted, times.waited(n))
        assert all(len(times.at[n]) == 1 for n in range(1, 6))
        await canary(stage, "work")


RETRIED = {"agent": "work", "outcome": "retried"}


async def test_a_backoff_of_a_minute_holds_back_no_backoff_of_a_second(place: Place) -> None:
    times = Times()
    async with waiting_agent(place, times) as stage:
        await stage.caller.publish(message("backoff", 1, ttl=None))
        slow = {"agent": "backoff", "outcome": "retried"}
        await until(lambda: stage.counted("deliveries_total", **slow) == 1, "parked for 60 s")
        await stage.caller.publish(message("quick", 7))
        await until(lambda: len(times.at.get(7, ())) == 2, "retried", 5)
        assert within(times.waited(7), 1)
        assert stage.counted("deliveries_total", **slow) == 1


async def test_delays_outlive_the_worker(place: Place) -> None:
    """All connections of the worker are gone while both wait; a new worker gets both."""
    times = Times()
    async with waiting_agent(place, times) as stage:
        await send(stage, 1, 3)
        await send(stage, 2, 1)
        await until(lambda: stage.counted("deliveries_total", **RETRIED) == 2, "both parked")
        await stage.stop(0.0)
        await stage.broker.close()
        assert await stage.depth(delay_level(0)) is not None
    async with waiting_agent(place, times) as stage:
        await until(lambda: [len(times.at[n]) for n in (1, 2)] == [2, 2], "both came back")
        assert times.waited(1) >= 2.95
        await canary(stage, "work")


async def test_a_missing_target_holds_back_no_other_delay(place: Place) -> None:
    """Delayed messages of an agent that is gone end among the lost; others' come in time."""
    times = Times()
    async with waiting_agent(place, times) as stage:
        await asyncio.gather(*(stage.caller.publish(message("gone")) for _ in range(40)))
        parked = {"agent": "gone", "outcome": "retried"}
        await until(lambda: stage.counted("deliveries_total", **parked) == 40, "parked")
        await stage.place.api("DELETE", "queues/{}/agent.gone")
        await send(stage, 5, 2)
        await until(lambda: len(times.at.get(5, ())) == 2, "retried", 6)
        assert within(times.waited(5), 2)

        async def all_lost() -> bool:
            return await stage.depth(LOST) == 40

        await until(all_lost, "those without a target among the lost")
        await send(stage, 6, 1)
        await until(lambda: len(times.at.get(6, ())) == 2, "retried", 6)
        assert within(times.waited(6), 1)
