"""Trying again: when a failing handler runs again, how often, and where its message waits."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from pydantic import BaseModel

from amqp_agents import AgentApp, Client, Context, Outgoing, RetryLater, RetryPolicy, agent, connect
from amqp_agents.agent import Agent
from amqp_agents.brokers.base import Broker
from amqp_agents.dead_letters import listed
from amqp_agents.errors import CapacityExceededError
from amqp_agents.topology.delays import LEVELS
from amqp_agents.topology.names import dead_letter_queue, delay_level
from tests.conformance.waiting import LIMIT_SECONDS, until, until_depth
from tests.integration.faults.agents import Work
from tests.integration.faults.ledger import Ledger
from tests.integration.faults.worker import Worker
from tests.nodes.endpoint import Endpoint

pytestmark = pytest.mark.rabbitmq

EARLY_SECONDS, LATE_SECONDS = 0.05, 1.0


class Job(BaseModel):
    name: str = "job"
    retry_after: int = 0


class Attempts:
    """Which attempts a handler was called with, and when."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[tuple[int, float]] = asyncio.Queue()

    def note(self, context: Context) -> None:
        self._calls.put_nowait((context.attempt, time.monotonic()))

    async def some(self, count: int) -> list[tuple[int, float]]:
        """The next calls."""
        async with asyncio.timeout(LIMIT_SECONDS):
            return [await self._calls.get() for _ in range(count)]

    @property
    def over(self) -> bool:
        """Whether no call was made that the test has not looked at."""
        return self._calls.empty()


def assert_times(times: Sequence[float], due: Sequence[float]) -> None:
    """The calls came when they were due, counted from the first."""
    offsets = [moment - times[0] for moment in times]
    assert len(offsets) == len(due)
    for offset, at in zip(offsets, due, strict=True):
        assert at - EARLY_SECONDS <= offset <= at + LATE_SECONDS, offsets


async def waiting_in(broker: Broker) -> list[str]:
    """The delay queues that hold a message now."""
    levels = [delay_level(level) for level in range(LEVELS)]
    depths = await asyncio.gather(*(broker.depth(level) for level in levels))
    return [level for level, depth in zip(levels, depths, strict=True) if depth]


async def until_it_waits_in(broker: Broker, *levels: int) -> None:
    wanted = [delay_level(level) for level in levels]

    async def seen() -> bool:
        return await waiting_in(broker) == wanted

    await until(seen, f"a message in {wanted}")


@asynccontextmanager
async def trying(
    app_url: str, *, attempts: Attempts, max_attempts: int = 5
) -> AsyncIterator[Client]:
    """A client of the agent `busy`, which asks for another attempt after `retry_after`."""

    @agent("busy", retry=RetryPolicy(max_attempts=max_attempts))
    async def busy(job: Job, context: Context) -> None:
        attempts.note(context)
        raise CapacityExceededError("no room", suggested_retry_after=job.retry_after)

    async with AgentApp([busy]).test(app_url) as client:
        yield client


async def test_a_failing_handler_runs_again_after_1_2_and_4_seconds_and_is_given_up(
    app_url: str,
) -> None:
    attempts = Attempts()

    @agent("failing", retry=RetryPolicy(max_attempts=4))
    async def failing(job: Job, context: Context) -> None:
        attempts.note(context)
        raise ValueError("it always fails")

    async with AgentApp([failing]).test(app_url) as client:
        await client.publish(Outgoing(Job(), to="failing"))
        calls = await attempts.some(4)
        await until_depth(client.broker, dead_letter_queue("failing"), 1)
        (letter,) = await listed(client.broker, "failing", limit=10)
    assert [attempt for attempt, _ in calls] == [1, 2, 3, 4]
    assert_times([moment for _, moment in calls], (0, 1, 3, 7))
    assert attempts.over
    assert (letter.code, letter.error, letter.message) == (
        "UNKNOWN",
        "ValueError",
        "it always fails",
    )
    assert letter.attempts == 4


async def test_attempts_go_on_after_the_worker_was_killed_during_a_delay(
    app_url: str, rabbitmq: Endpoint
) -> None:
    async with (
        Ledger() as ledger,
        Worker(
            app_url,
            management_url=rabbitmq.management_url,
            ledger_port=ledger.port,
            grace=5,
        ) as worker,
        connect(app_url) as client,
    ):
        await client.publish(Outgoing(Work(key="job"), to="failing"))
        await ledger.until(lambda counts: "job:3" in counts.get("attempt", ()))
        await until_it_waits_in(client.broker, 2)
        await worker.kill()
        assert await waiting_in(client.broker) == [delay_level(2)]
        await worker.start()
        restarted = time.time()
        await until_depth(client.broker, dead_letter_queue("failing"), 1)
        (letter,) = await listed(client.broker, "failing", limit=10)
        told = (await ledger.noted())["attempt"]
    assert {key: len(times) for key, times in told.items()} == {
        f"job:{attempt}": 1 for attempt in (1, 2, 3, 4)
    }
    times = [told[f"job:{attempt}"][0] for attempt in (1, 2, 3, 4)]
    assert_times(times, (0, 1, 3, max(7, restarted - times[0])))
    assert letter.attempts == 4
    assert letter.message == "it always fails"


async def test_an_error_says_itself_when_to_try_again(app_url: str) -> None:
    attempts = Attempts()
    async with trying(app_url, attempts=attempts, max_attempts=2) as client:
        await client.publish(Outgoing(Job(retry_after=3), to="busy"))
        calls = await attempts.some(2)
        await until_depth(client.broker, dead_letter_queue("busy"), 1)
    assert [attempt for attempt, _ in calls] == [1, 2]
    assert_times([moment for _, moment in calls], (0, 3))
    assert attempts.over


async def test_a_long_delay_does_not_hold_back_a_short_one(app_url: str) -> None:
    attempts = Attempts()
    async with trying(app_url, attempts=attempts) as client:
        await client.publish(Outgoing(Job(name="long", retry_after=31), to="busy"))
        await attempts.some(1)
        await until_it_waits_in(client.broker, 4)
        await client.publish(Outgoing(Job(name="short", retry_after=1), to="busy"))
        calls = await attempts.some(2)
        assert delay_level(4) in await waiting_in(client.broker)
    assert [attempt for attempt, _ in calls] == [1, 2]
    assert_times([moment for _, moment in calls], (0, 1))


async def test_to_be_called_later_spends_no_attempt(app_url: str) -> None:
    attempts = Attempts()
    calls = 0

    @agent("patient", retry=RetryPolicy(max_attempts=1))
    async def patient(job: Job, context: Context) -> None:
        nonlocal calls
        attempts.note(context)
        calls += 1
        if calls < 3:
            raise RetryLater(1, "the approval is pending")

    async with AgentApp([patient]).test(app_url) as client:
        await client.publish(Outgoing(Job(), to="patient"))
        noted = await attempts.some(3)
        assert await client.broker.depth(dead_letter_queue("patient")) == 0
    assert [attempt for attempt, _ in noted] == [1, 1, 1]
    assert_times([moment for _, moment in noted], (0, 1, 2))


async def test_an_event_is_tried_again_by_the_agent_that_failed_only(app_url: str) -> None:
    flaky, steady = Agent("flaky"), Agent("steady")
    failed, handled = Attempts(), Attempts()

    @flaky.on_event("ticket.closed")
    async def fail_once(job: Job, context: Context) -> None:
        failed.note(context)
        if context.attempt == 1:
            raise ValueError("not yet")

    @steady.on_event("ticket.closed")
    async def handle(job: Job, context: Context) -> None:
        handled.note(context)

    async with AgentApp([flaky, steady]).test(app_url) as client:
        await client.publish(Outgoing(Job(), event="ticket.closed"))
        assert [attempt for attempt, _ in await failed.some(2)] == [1, 2]
        assert [attempt for attempt, _ in await handled.some(1)] == [1]
        # Everything that was sent before this event has arrived when it has.
        await client.publish(Outgoing(Job(), event="ticket.closed"))
        await handled.some(1)
    assert handled.over


async def test_no_attempt_is_made_that_the_message_would_not_live_to_see(app_url: str) -> None:
    attempts = Attempts()
    async with trying(app_url, attempts=attempts) as client:
        await client.publish(Outgoing(Job(retry_after=1), to="busy", ttl=2))
        calls = await attempts.some(2)
        began = time.monotonic()
        await until_depth(client.broker, dead_letter_queue("busy"), 1)
        assert time.monotonic() - began < LATE_SECONDS, "given up at once, not after the delay"
        (letter,) = await listed(client.broker, "busy", limit=10)
    assert [attempt for attempt, _ in calls] == [1, 2]
    assert attempts.over
    assert letter.code == "AGENT_TIMEOUT"
    assert letter.error == "ExpiredMessageError"
    assert "no room" in letter.message
