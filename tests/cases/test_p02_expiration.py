"""A time to live as AMQP expiration: none left, fractions, too long; neighbours are untouched."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from amqp_agents import AgentError, Outgoing, agent
from amqp_agents.errors import ExpiredMessageError, InvalidPayloadError
from amqp_agents.topology.names import inbox
from tests.cases.stage import Place, Stage, Work, message, on_stage
from tests.nodes.rawpub import Refused, properties, short

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

LONGEST_MS = 2**32 - 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    """The agents do not run, so that what was sent can be looked at in their inboxes."""

    @agent("work")
    async def work(given: Work) -> None: ...

    @agent("good")
    async def good(given: Work) -> None: ...

    async with on_stage(shared_place, work, good, start=False) as stage:
        yield stage


async def amid_good_ones(stage: Stage, sending: Any) -> Any:
    """Send it while ten good ones are under way: these are confirmed, whatever it does."""
    before = await stage.depth(inbox("good")) or 0
    opened = stage.caller.broker._publishing.epoch  # type: ignore[attr-defined]
    good = [stage.caller.publish(message("good", n)) for n in range(10)]
    answers = await asyncio.gather(*good[:5], sending, *good[5:], return_exceptions=True)
    answer = answers.pop(5)
    assert answers == [None] * 10
    assert await stage.depth(inbox("good")) == before + 10
    assert stage.caller.broker._publishing.epoch == opened  # type: ignore[attr-defined]
    await asyncio.wait_for(stage.caller.publish(message("good")), 1)
    return answer


def aged(ttl: int, age_seconds: float, **fields: Any) -> Any:
    created = datetime.now(UTC) - timedelta(seconds=age_seconds)
    return message("work", timestamp=created, ttl=ttl, **fields)


@pytest.mark.parametrize(
    ("ttl", "age_seconds"), [(0, 0), (1, 1), (1, 2), (1, 3600), (300, 301), (1, 10**9)]
)
async def test_without_life_left_nothing_is_sent_and_the_caller_learns_it(
    stage: Stage, ttl: int, age_seconds: float
) -> None:
    before = await stage.depth(inbox("work"))
    answer = await amid_good_ones(stage, stage.caller.publish(aged(ttl, age_seconds)))
    assert isinstance(answer, ExpiredMessageError)
    assert "expired before it was sent" in str(answer)
    assert await stage.depth(inbox("work")) == before


@pytest.mark.parametrize("ttl", [-1, 0.0004, 0.5, 1.5, float("nan"), float("inf"), "5 s", 2**53])
async def test_a_ttl_that_is_no_whole_number_of_seconds_is_refused(stage: Stage, ttl: Any) -> None:
    async def sending() -> None:
        await stage.caller.publish(Outgoing(Work(), to="work", ttl=ttl))

    answer = await amid_good_ones(stage, sending())
    assert isinstance(answer, InvalidPayloadError)
    assert "ttl" in str(answer)


@pytest.mark.parametrize(
    ("ttl", "age_seconds", "least_ms", "most_ms"),
    [
        (1, 0.5, 1, 500),
        (1, 0.9, 1, 100),
        (300, 0, 299_000, 300_000),
        (300, 100, 199_000, 200_000),
        (4_294_967, 0, 4_294_960_000, 4_294_967_000),
        (10**9, 0, LONGEST_MS, LONGEST_MS),
        (10**9, 10**6, LONGEST_MS, LONGEST_MS),
        (2**53 - 1, 0, LONGEST_MS, LONGEST_MS),
    ],
)
async def test_what_is_left_of_a_life_is_the_expiration_in_milliseconds(
    stage: Stage, ttl: int, age_seconds: float, least_ms: int, most_ms: int
) -> None:
    sent: list[int | None] = []
    broker = stage.caller.broker
    publish = broker.publish

    async def seen(publishing: Any, **options: Any) -> None:
        if publishing.routing_key == "work":
            sent.append(publishing.properties.expiration_ms)
        await publish(publishing, **options)

    broker.publish = seen  # type: ignore[method-assign]
    try:
        answer = await amid_good_ones(stage, stage.caller.publish(aged(ttl, age_seconds)))
    finally:
        del broker.publish  # type: ignore[method-assign]
    assert answer is None
    (expiration,) = sent
    assert expiration is not None
    assert least_ms <= expiration <= most_ms
    if ttl >= 300:
        newest = (await stage.waiting(inbox("work")))[-1]
        assert newest.properties.expiration_ms == expiration


async def test_no_ttl_is_no_expiration(stage: Stage) -> None:
    assert await amid_good_ones(stage, stage.caller.publish(message("work", ttl=None))) is None
    newest = (await stage.waiting(inbox("work")))[-1]
    assert newest.properties.expiration_ms is None


@pytest.mark.parametrize("deadline_ms", [1, 400])
async def test_a_deadline_in_milliseconds_bounds_the_expiration(
    stage: Stage, deadline_ms: int
) -> None:
    late = aged(300, 2, deadline_ms=deadline_ms)
    answer = await amid_good_ones(stage, stage.caller.publish(late))
    assert isinstance(answer, ExpiredMessageError)


@pytest.mark.parametrize("timeout_seconds", [0.0, -1.0])
async def test_a_request_without_patience_ends_at_once(
    stage: Stage, timeout_seconds: float
) -> None:
    asking = stage.caller.request("work", {"n": 1}, timeout_seconds=timeout_seconds)
    answer = await asyncio.wait_for(amid_good_ones(stage, asking), 1)
    assert isinstance(answer, AgentError)
    assert isinstance(answer, TimeoutError)


async def test_a_foreign_expiration_is_refused_by_the_broker_alone(stage: Stage) -> None:
    """Nobody's publish can bring such a message: a foreign one is told, on its own channel."""
    for text in (b"-1", b"60000.5", b"abc", b"1000000000000"):
        with pytest.raises(Refused):
            await stage.put("work", b"{}", properties(expiration=short(text)))
    assert await amid_good_ones(stage, stage.caller.publish(message("work"))) is None
