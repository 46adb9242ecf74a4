"""Nobody works for a caller who left."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from amqp_agents import DependencyFailedError, RetryLater, RetryPolicy, agent
from tests.cases.checks import bounded, canary, odd, settled, told
from tests.cases.stage import JSON, Place, Stage, Work, body_of, message, on_stage, until
from tests.nodes.rawpub import properties

pytestmark = pytest.mark.rabbitmq


@asynccontextmanager
async def staged(place: Place, handled: list[int], *, start: bool = True) -> AsyncIterator[Stage]:
    @agent("work", concurrency=1)
    async def work(given: Work) -> None:
        handled.append(given.n)

    @agent("failing", retry=RetryPolicy(max_attempts=20))
    async def failing(given: Work) -> None:
        handled.append(given.n)
        raise DependencyFailedError("not yet")

    @agent("waiting")
    async def waiting(given: Work) -> None:
        handled.append(given.n)
        if given.n:
            raise RetryLater(2)

    async with on_stage(place, work, failing, waiting, start=start) as stage:
        yield stage


def old(
    agent: str, n: int, *, ttl: int | None, age_seconds: float, **fields: object
) -> tuple[bytes, str]:
    """A message that a foreign sender put into the queue without any expiration."""
    written, message_id = body_of(agent, n, **fields)
    created = datetime.now(UTC) - timedelta(seconds=age_seconds)
    data = json.loads(written) | {"timestamp": created.isoformat(), "ttl": ttl}
    return json.dumps(data).encode(), message_id


@pytest.mark.parametrize("kind", ["direct", "request"])
async def test_a_backlog_of_expired_ones_lets_the_fresh_ones_through_at_once(
    place: Place, kind: str
) -> None:
    handled: list[int] = []
    async with staged(place, handled, start=False) as stage:
        fields = {"message_type": kind, "ttl": 1}
        expired = [message("work", n, **fields) for n in range(100, 150)]
        await asyncio.gather(*(stage.caller.publish(each) for each in expired))
        born = time.monotonic()
        await until(lambda: time.monotonic() > born + 2, "they expired")
        for n in range(1, 6):
            await stage.caller.publish(message("work", n))
        await stage.start()
        await until(lambda: len(handled) == 5, "the fresh ones", 5)
        await canary(stage, "work")
        assert sorted(handled) == [0, 1, 2, 3, 4, 5]
        letters = await stage.dead_letters("work")
        ids = [each.properties.headers["aa-message-id"] for each in letters]
        assert sorted(ids) == sorted(each.message_id for each in expired)
        reasons = {each.properties.headers.get("aa-fault-code", "expired") for each in letters}
        assert reasons <= {"expired", "AGENT_TIMEOUT"}


@pytest.mark.parametrize("by", ["ttl", "deadline"])
async def test_retries_end_with_the_first_deadline(place: Place, by: str) -> None:
    handled: list[int] = []
    life = {"ttl": 5} if by == "ttl" else {"ttl": 300, "deadline_ms": 5000}
    async with staged(place, handled) as stage:
        sent = message("failing", 1, **life)
        await stage.caller.publish(sent)
        await until(lambda: stage.journal.count("dead-lettered", sent.message_id) == 1, "ended", 8)
        assert len(handled) == 3  # at 0, 1 and 3 s; the next would be at 7
        (letter,) = await stage.dead_letters("failing")
        headers = letter.properties.headers
        assert headers["aa-fault-code"] == "AGENT_TIMEOUT"
        assert headers["aa-fault-type"] == "ExpiredMessageError"
        assert "not yet" in headers["aa-fault-message"]


async def test_waiting_without_an_attempt_ends_with_the_first_deadline(place: Place) -> None:
    handled: list[int] = []
    async with staged(place, handled) as stage:
        sent = message("waiting", 1, ttl=5)
        await stage.caller.publish(sent)
        await until(lambda: stage.journal.count("dead-lettered", sent.message_id) == 1, "ended", 8)
        assert 2 <= len(handled) <= 3
        await canary(stage, "waiting")


@pytest.mark.parametrize(
    ("ttl", "age_seconds", "fields"),
    [
        (1, 2, {}),
        (1, 86_400, {}),
        (0, 0, {}),
        (300, 10, {"deadline_ms": 1}),
        (300, 10, {"deadline_ms": 9_999}),
        (86_400, 86_401, {"message_type": "request"}),
    ],
)
async def test_an_expired_message_without_the_property_is_given_up_unread(
    place: Place, ttl: int, age_seconds: float, fields: dict[str, object]
) -> None:
    handled: list[int] = []
    async with staged(place, handled) as stage:
        body, message_id = old("work", 7, ttl=ttl, age_seconds=age_seconds, **fields)
        case = odd(stage, "work", body, message_id)
        await stage.put("work", body, properties(content_type=JSON))
        await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up", 5)
        await canary(stage, "work")
        resting = await settled(case, "dead")
        bounded(case)
        told(case, "AGENT_TIMEOUT")
        assert handled == [0]
        assert resting is not None
        assert resting.properties.headers["aa-fault-type"] == "ExpiredMessageError"


@pytest.mark.parametrize(("ttl", "age_seconds"), [(300, 0), (300, 250), (300, -3600), (None, 1e7)])
async def test_a_message_with_life_left_is_handled(
    place: Place, ttl: int | None, age_seconds: float
) -> None:
    """Also one whose sender's clock runs an hour ahead."""
    handled: list[int] = []
    async with staged(place, handled) as stage:
        body, message_id = old("work", 7, ttl=ttl, age_seconds=age_seconds)
        case = odd(stage, "work", body, message_id)
        await stage.put("work", body, properties(content_type=JSON))
        await canary(stage, "work")
        await settled(case, "handled")
        assert handled == [7, 0]
