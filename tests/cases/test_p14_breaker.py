"""Callers' mistakes open no circuit: only failures of the target, or beneath it, count."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from amqp_agents import (
    AgentCommunicationError,
    BreakerPolicy,
    CircuitOpenError,
    DependencyFailedError,
    ErrorCode,
    NonRetryableError,
    PermissionDeniedError,
    RetryPolicy,
    agent,
)
from amqp_agents.errors import (
    CapacityExceededError,
    ExpiredMessageError,
    HandlerTimeoutError,
    InvalidPayloadError,
    PayloadConflictError,
    RetryLater,
    SchemaMismatchError,
    StaleVersionError,
)
from amqp_agents.routing.breaker import Breaker
from amqp_agents.routing.breaker_state import BreakerState
from amqp_agents.routing.failures import counts_as_failure
from tests.cases.checks import canary
from tests.cases.stage import Done, Place, Stage, Work, message, on_stage, until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

MISTAKES: list[Exception] = [
    InvalidPayloadError("x"),
    SchemaMismatchError("version", received="2", accepted=["1"]),
    PermissionDeniedError("x"),
    ExpiredMessageError("x"),
    PayloadConflictError("k", accepted="a", received="b"),
    StaleVersionError("x"),
    RetryLater(1),
    *(
        NonRetryableError("x", failed_agent="a", code=code)
        for code in (
            ErrorCode.INVALID_PAYLOAD,
            ErrorCode.SCHEMA_MISMATCH,
            ErrorCode.PERMISSION_DENIED,
        )
    ),
]
FAILURES: list[Exception] = [
    DependencyFailedError("x"),
    HandlerTimeoutError("a", limit_seconds=1),
    CapacityExceededError("x"),
    AgentCommunicationError("x", failed_agent="a", code=ErrorCode.TIMEOUT),
    ValueError("x"),
    OSError("x"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    once = RetryPolicy(max_attempts=1)

    @agent("well", concurrency=1, retry=once)
    async def well(given: Work) -> Done:
        if given.n < 0:
            raise PermissionDeniedError("not below zero")
        return Done(n=given.n)

    @agent("sick", concurrency=1, retry=once)
    async def sick(given: Work) -> Done:
        raise DependencyFailedError("the database is away")

    async with on_stage(shared_place, well, sick) as stage:
        yield stage


@pytest.mark.parametrize(
    "error", MISTAKES, ids=lambda e: f"{type(e).__name__}-{getattr(e, 'code', '')}"
)
async def test_a_callers_mistake_neither_counts_nor_resets(error: Exception) -> None:
    assert not counts_as_failure(error)
    breaker = Breaker(BreakerPolicy(consecutive=3), now=0.0)
    for _ in range(2):
        permit = breaker.acquire(0.0).permit
        assert permit is not None
        breaker.failed(permit, 0.0)
        for _ in range(10):
            between = breaker.acquire(0.0).permit
            assert between is not None
            breaker.abandoned(between, 0.0)
    assert breaker.state is BreakerState.CLOSED
    third = breaker.acquire(0.0).permit
    assert third is not None
    breaker.failed(third, 0.0)
    assert breaker.state is BreakerState.OPEN
    refused = breaker.acquire(0.0)
    assert refused.permit is None
    assert refused.retry_after_seconds >= 0


@pytest.mark.parametrize("error", FAILURES, ids=lambda e: type(e).__name__)
async def test_a_failure_of_the_target_counts(error: Exception) -> None:
    assert counts_as_failure(error)


@pytest.mark.parametrize("mistake", [{"n": "many"}, {"n": -1}, {"n": None}])
async def test_ten_bad_requests_leave_the_good_one_served(
    stage: Stage, mistake: dict[str, object]
) -> None:
    answers = await asyncio.gather(
        *(stage.caller.request("well", mistake, timeout_seconds=5) for _ in range(10)),
        return_exceptions=True,
    )
    assert {type(answer) for answer in answers} == {NonRetryableError}
    assert await stage.caller.request("well", {"n": 1}, timeout_seconds=5) == {"n": 1}
    await canary(stage, "well")


async def test_a_sick_target_is_no_reason_to_doubt_a_well_one(stage: Stage) -> None:
    for _ in range(3):
        with pytest.raises(AgentCommunicationError):
            await stage.caller.request("sick", {"n": 1}, timeout_seconds=5)
        assert await stage.caller.request("well", {"n": 1}, timeout_seconds=5) == {"n": 1}
    await canary(stage, "well")


async def test_failures_open_only_that_target_and_a_refusal_is_immediate(place: Place) -> None:
    runs: list[int] = []

    @agent("sick", retry=RetryPolicy(max_attempts=1))
    async def sick(given: Work) -> Done:
        runs.append(given.n)
        raise DependencyFailedError("away")

    @agent("well", concurrency=1)
    async def well(given: Work) -> Done:
        return Done(n=given.n)

    async with on_stage(place, sick, well) as stage:
        for n in range(5):
            with pytest.raises(AgentCommunicationError):
                await stage.caller.request("sick", {"n": n}, timeout_seconds=5)
        began = time.monotonic()
        with pytest.raises(CircuitOpenError) as refused:
            await stage.caller.request("sick", {"n": 9}, timeout_seconds=5)
        assert time.monotonic() - began < 0.1
        assert refused.value.suggested_retry_after is not None
        assert len(runs) == 5
        assert await stage.caller.request("well", {"n": 1}, timeout_seconds=5) == {"n": 1}
        await canary(stage, "well")


class Ill:
    """Whether the dependency is away, and what was tried."""

    def __init__(self) -> None:
        self.ill = True
        self.runs: list[int] = []


@pytest.mark.parametrize("concurrency", [1, 8])
async def test_an_open_agent_takes_nothing_loses_nothing_and_comes_back(
    place: Place, concurrency: int
) -> None:
    state = Ill()
    policy = BreakerPolicy(consecutive=3, first_open_seconds=2, shortest_open_seconds=2)

    @agent("sick", concurrency=concurrency, breaker=policy, retry=RetryPolicy(base_seconds=30))
    async def sick(given: Work) -> None:
        state.runs.append(given.n)
        if given.n < 0:
            raise PermissionDeniedError("not below zero")
        if state.ill:
            raise DependencyFailedError("away")

    async with on_stage(place, sick) as stage:

        async def put(n: int) -> None:
            before = len(state.runs)
            await stage.caller.publish(message("sick", n))
            await until(lambda: len(state.runs) == before + 1, f"{n} tried")

        for n in (1, -1, 2, -2, 3):  # what is between neither counts nor resets
            assert stage.counted("breaker_state", agent="sick", dependency="") == 0
            await put(n)
        intake = stage.serving.consumers[0].intake
        await until(lambda: not intake.subscriptions, "nothing is consumed")
        sent = [message("sick", n) for n in range(100, 120)]
        for each in sent:
            await stage.caller.publish(each)
        # No loop: what waits is not even delivered.
        assert len(state.runs) == 5
        assert await stage.depth("agent.sick") == 20
        assert stage.broker.deliveries.total() == 5
        assert stage.counted("breaker_state", agent="sick", dependency="") == 2
        state.ill = False
        await until(lambda: len(state.runs) == 25, "all handled once it is over", 15)
        assert sorted(state.runs[5:]) == list(range(100, 120))
        assert len(await stage.dead_letters("sick")) == 2  # the callers' mistakes
        assert [e["state"] for e in stage.events("breaker_moved")] == [
            "open",
            "half_open",
            "closed",
        ]
        assert stage.broker.connections == 2
