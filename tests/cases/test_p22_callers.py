"""Whatever becomes of a request, its caller learns it, soon, and waits for nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from amqp_agents import (
    AgentCommunicationError,
    AgentError,
    Client,
    DependencyFailedError,
    ErrorCode,
    NonRetryableError,
    PermissionDeniedError,
    RequestTimeoutError,
    RetryPolicy,
    UnroutableMessageError,
    agent,
    connect,
)
from amqp_agents.brokers.base import SubscriptionState
from tests.cases.checks import canary
from tests.cases.stage import Done, Place, Stage, Work, on_stage, until
from tests.nodes.proxy import Proxy

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]


class Loose(BaseModel):
    """An answer that may hold what JSON cannot carry."""

    what: Any = None


class Gate:
    open: asyncio.Event
    began: asyncio.Semaphore


UNWRITABLE: dict[str, Any] = {
    "not a number": float("nan"),
    "infinity": [1, float("inf")],
    "bytes": b"\xff",
    "half a surrogate": "\ud800",
    "object": object(),
    "too large": "x" * 2_000_000,
    "a circle": [],
    "set of objects": {object()},
}
UNWRITABLE["a circle"].append(UNWRITABLE["a circle"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    Gate.open, Gate.began = asyncio.Event(), asyncio.Semaphore(0)

    @agent("failing", retry=RetryPolicy(max_attempts=3, base_seconds=1))
    async def failing(given: Work) -> Done:
        raise DependencyFailedError("the database is away")

    @agent("crashing", retry=RetryPolicy(max_attempts=1))
    async def crashing(given: Work) -> Done:
        raise KeyError("boom")

    @agent("refusing")
    async def refusing(given: Work) -> Done:
        raise PermissionDeniedError("not for you")

    @agent("silent")
    async def silent(given: Work) -> None: ...

    @agent("odd")
    async def odd(given: Work) -> Loose:
        return Loose(what=UNWRITABLE[list(UNWRITABLE)[given.n]])

    @agent("lying")
    async def lying(given: Work) -> Done:
        return {"not": "a Done"}  # type: ignore[return-value]

    @agent("slow", concurrency=50)
    async def slow(given: Work) -> Done:
        Gate.began.release()
        await Gate.open.wait()
        return Done(n=given.n)

    agents = (failing, crashing, refusing, silent, odd, lying, slow)
    async with on_stage(shared_place, *agents) as stage:
        yield stage
        Gate.open.set()


async def ended(asking: Awaitable[Any]) -> tuple[float, Any]:
    began = time.monotonic()
    (outcome,) = await asyncio.gather(asking, return_exceptions=True)
    return time.monotonic() - began, outcome


def nobody_waits(client: Client) -> bool:
    return not client.requester.pending and not client.requester._correlated


async def test_retries_end_with_one_error_answer_at_once(stage: Stage) -> None:
    took, error = await ended(stage.caller.request("failing", {"n": 1}, timeout_seconds=20))
    assert isinstance(error, AgentCommunicationError)
    assert (error.code, error.failed_agent) == (ErrorCode.DEPENDENCY_FAILED, "failing")
    assert error.retryable
    assert "the database is away" in str(error)
    assert 2.9 <= took < 6  # waits of 1 and 2 s, and not a moment more
    assert nobody_waits(stage.caller)


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("refusing", ErrorCode.PERMISSION_DENIED, NonRetryableError),
        ("crashing", ErrorCode.UNKNOWN, AgentCommunicationError),
        ("lying", ErrorCode.INVALID_PAYLOAD, NonRetryableError),
    ],
)
async def test_a_failure_that_is_not_retried_is_answered_at_once(
    stage: Stage, name: str, code: ErrorCode, kind: type[AgentCommunicationError]
) -> None:
    took, error = await ended(stage.caller.request(name, {"n": 1}, timeout_seconds=10))
    assert isinstance(error, kind)
    assert (error.code, error.failed_agent) == (code, name)
    assert took < 2
    assert nobody_waits(stage.caller)


async def test_a_question_the_agent_cannot_read_is_answered_at_once(stage: Stage) -> None:
    asking = stage.caller.request("silent", {"n": "many"}, timeout_seconds=10)
    took, error = await ended(asking)
    assert isinstance(error, NonRetryableError)
    assert error.code is ErrorCode.INVALID_PAYLOAD
    assert took < 2


async def test_nothing_is_an_empty_answer(stage: Stage) -> None:
    assert await stage.caller.request("silent", {"n": 1}, timeout_seconds=5) == {}


@pytest.mark.parametrize("what", UNWRITABLE)
async def test_an_answer_that_cannot_be_written_is_an_error_and_a_dead_letter(
    stage: Stage, what: str
) -> None:
    before = len(await stage.dead_letters("odd"))
    number = list(UNWRITABLE).index(what)
    took, error = await ended(stage.caller.request("odd", {"n": number}, timeout_seconds=10))
    assert isinstance(error, AgentCommunicationError), error
    assert error.code is ErrorCode.INVALID_PAYLOAD
    assert took < 2
    letters = await stage.dead_letters("odd")
    assert len(letters) == before + 1
    assert letters[-1].properties.headers["aa-fault-code"] == "INVALID_PAYLOAD"


@pytest.mark.parametrize("name", ["nobody", "nobody-else"])
async def test_a_recipient_without_a_queue_is_unroutable_at_once(stage: Stage, name: str) -> None:
    took, error = await ended(stage.caller.request(name, {"n": 1}, timeout_seconds=10))
    assert isinstance(error, UnroutableMessageError)
    assert took < 1
    assert nobody_waits(stage.caller)


async def test_a_late_answer_is_counted_and_told_without_a_traceback(stage: Stage) -> None:
    Gate.open.clear()
    before = stage.counted("late_replies_total")
    errors = len([r for r in stage.told.records if r.exc_info])
    took, error = await ended(stage.caller.request("slow", {"n": 1}, timeout_seconds=0.5))
    assert isinstance(error, RequestTimeoutError)
    assert 0.45 <= took < 1
    assert nobody_waits(stage.caller)
    Gate.open.set()
    await until(lambda: late(stage.caller) + stage.counted("late_replies_total") > before, "late")
    assert len([r for r in stage.told.records if r.exc_info]) == errors


def late(client: Client) -> float:
    registry = client.telemetry.metrics.registry
    return registry.get_sample_value("amqp_agents_late_replies_total") or 0.0


async def test_a_thousand_calls_that_time_out_leave_nothing_behind(stage: Stage) -> None:
    Gate.open.clear()
    asking = [stage.caller.request("slow", {"n": n}, timeout_seconds=2) for n in range(1000)]
    took, outcomes = await ended(asyncio.gather(*asking, return_exceptions=True))
    assert {type(outcome) for outcome in outcomes} == {RequestTimeoutError}
    assert took < 8
    await until(lambda: nobody_waits(stage.caller), "nothing pending", 1)
    Gate.open.set()
    await until(lambda: stage.counted("handlings", agent="slow") == 0, "the agent is free")
    assert await stage.caller.request("silent", {"n": 1}, timeout_seconds=5) == {}


async def test_a_cancelled_caller_leaves_nothing_behind(stage: Stage) -> None:
    Gate.open.clear()
    while not Gate.began.locked():
        await Gate.began.acquire()
    calls = [asyncio.create_task(stage.caller.request("slow", {"n": n})) for n in range(10)]
    async with asyncio.timeout(5):
        await Gate.began.acquire()
    for call in calls:
        call.cancel()
    await asyncio.wait(calls, timeout=1)
    assert all(call.cancelled() for call in calls)
    assert nobody_waits(stage.caller)
    Gate.open.set()
    await canary_by_request(stage)


def again(client: Client) -> bool:
    """Whether the replies are listened to over a second connection."""
    (replies,) = client.broker._opened  # type: ignore[attr-defined]
    up: bool = replies.state is SubscriptionState.UP
    return up and client.broker._consuming.epoch == 2  # type: ignore[attr-defined]


async def canary_by_request(stage: Stage) -> None:
    assert await stage.caller.request("silent", {"n": 1}, timeout_seconds=5) == {}


@pytest.mark.parametrize("fault", ["reset", "cut", "half_open", "black_hole", "refused"])
async def test_a_connection_lost_while_waiting_is_no_hang(stage: Stage, fault: str) -> None:
    Gate.open.clear()
    while not Gate.began.locked():
        await Gate.began.acquire()
    async with Proxy(stage.place.port) as proxy:
        settings = stage.place.settings(url=proxy.url(stage.place.url))
        async with connect(settings=settings, name="proxied") as client:
            asking = asyncio.create_task(ended(client.request("slow", {"n": 5}, timeout_seconds=4)))
            async with asyncio.timeout(5):
                await Gate.began.acquire()
            if fault == "refused":
                proxy.refuse()
                proxy.reset()
            else:
                getattr(proxy, fault)()
            if fault == "half_open":
                await until(lambda: again(client), "connected again", 3)
            Gate.open.set()
            took, outcome = await asyncio.wait_for(asking, 6)
            assert took < 4.5
            answered = outcome == {"n": 5}
            assert answered or isinstance(outcome, AgentError), outcome
            if fault in ("reset", "cut", "half_open"):
                assert answered, outcome  # the reply queue outlives the connection
            assert nobody_waits(client)
            proxy.heal()
    await canary_by_request(stage)


async def test_the_agents_are_well_at_the_end(stage: Stage) -> None:
    await canary(stage, "silent")
    assert await stage.depth("agent.slow") == 0
