"""Callers' mistakes open no circuit: only failures of the target, or beneath it, count."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from amqp_agents import (
    AgentCommunicationError,
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
from amqp_agents.routing.breaker_state import BreakerPolicy, BreakerState
from amqp_agents.routing.failures import counts_as_failure
from tests.cases.checks import canary
from tests.cases.stage import Done, Place, Stage, Work, on_stage

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
