"""Attempts are counted in one place; headers from outside neither reset nor break it."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from amqp_agents import DependencyFailedError, RetryPolicy, agent
from amqp_agents.outcome import backoff_seconds
from tests.cases.checks import Odd, bounded, canary, odd, settled, told
from tests.cases.stage import JSON, Place, Stage, Work, body_of, on_stage, until
from tests.nodes.rawpub import Refused, long, properties, table

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

MAX = 4  # one try and three retries
SUGGESTED: list[Any] = []


class AdvisedError(DependencyFailedError):
    """Says when to come again, in whatever words."""

    def __init__(self, suggested: Any) -> None:
        super().__init__("not now")
        self.suggested_retry_after = suggested


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    @agent("work", concurrency=1)
    async def work(given: Work) -> None: ...

    @agent("failing", concurrency=1, retry=RetryPolicy(max_attempts=MAX, base_seconds=0))
    async def failing(given: Work) -> None:
        if given.n:
            raise ValueError("it always fails")

    @agent("paced", concurrency=1, retry=RetryPolicy(max_attempts=3, base_seconds=1))
    async def paced(given: Work) -> None:
        if given.n:
            raise ValueError("it always fails")

    @agent("advised", concurrency=1)
    async def advised(given: Work) -> None:
        if given.n and SUGGESTED:
            raise AdvisedError(SUGGESTED.pop())

    async with on_stage(shared_place, work, failing, paced, advised) as stage:
        yield stage


def i64(value: int) -> bytes:
    return b"l" + struct.pack(">q", value)


DEATH = table(
    (b"count", i64(7)),
    (b"reason", b"S" + long(b"expired")),
    (b"queue", b"S" + long(b"another.queue")),
    (b"exchange", b"S" + long(b"")),
    (b"routing-keys", b"A" + long(b"S" + long(b"another.queue"))),
)
VALUES = {
    "text": b"S" + long(b"3"),
    "words": b"S" + long(b"many"),
    "-5": b"I" + struct.pack(">i", -5),
    "0": b"I" + struct.pack(">i", 0),
    "10**9": i64(10**9),
    "2**63-1": i64(2**63 - 1),
    "-2**63": i64(-(2**63)),
    "void": b"V",
    "2.5": b"d" + struct.pack(">d", 2.5),
    "list": b"A" + long(b"I" + struct.pack(">i", 1)),
    "table": b"F" + table((b"n", b"V")),
    "true": b"t\x01",
    "bytes": b"x" + long(b"\x03"),
    "decimal": b"D\x00" + struct.pack(">i", 3),
    "time": b"T" + b"\xff" * 8,
}
NAMES = [
    "aa-attempt",
    "aa-depth",
    "aa-clock-ms",
    "aa-due-at",
    "aa-message-id",
    "aa-idempotency-key",
    "aa-deadline-ms",
    "aa-orig-routing-key",
    "aa-orig-message-id",
    "aa-retry-id",
    "aa-fault-code",
    "aa-digest",
    "x-retry-count",
    "x-delivery-count",
    "x-death",
    "x-first-death-queue",
    "d0",
    "traceparent",
]
TOO_DEEP = ("10**9", "2**63-1")
READ_BY_RABBITMQ = ("x-death", "x-delivery-count", "x-first-death-queue")


async def test_three_retries_then_the_dead_letter_queue(stage: Stage) -> None:
    body, message_id = body_of("paced", 1)
    case = odd(stage, "paced", body, message_id)
    await stage.put("paced", body)
    await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up")
    assert stage.journal.count("retried", message_id) == 2
    await canary(stage, "paced")
    resting = await settled(case, "dead")
    bounded(case, 3)
    assert stage.broker.deliveries[body] == 3
    told(case, "it always fails")
    assert resting is not None
    assert resting.properties.headers["aa-attempt"] == 3


@pytest.mark.parametrize("name", NAMES)
async def test_a_header_of_ours_from_outside_is_worth_nothing_or_refused(
    stage: Stage, name: str
) -> None:
    """Every kind of value at once; a list of what RabbitMQ itself would not take."""
    refused: list[str] = []
    cases: dict[str, tuple[Odd, str]] = {}

    async def send(value: str) -> None:
        body, message_id = body_of("failing", 1)
        props = properties(content_type=JSON, headers=table((name.encode(), VALUES[value])))
        case = odd(stage, "failing", body, message_id)
        try:
            await stage.put("failing", body, props)
        except (Refused, asyncio.IncompleteReadError):
            refused.append(value)
        else:
            cases[value] = case, message_id

    def all_given_up() -> bool:
        ids = [message_id for _, message_id in cases.values()]
        return all(stage.journal.count("dead-lettered", each) == 1 for each in ids)

    await asyncio.gather(*map(send, VALUES))
    await until(all_given_up, f"every kind of {name} given up", 10)
    await canary(stage, "failing")
    assert not refused or name in READ_BY_RABBITMQ
    for value, (case, _) in cases.items():
        attempts = 1 if name == "aa-depth" and value in TOO_DEEP else MAX
        assert stage.broker.deliveries[case.body] == attempts, value
        bounded(case, attempts)
    resting = [d.properties.headers["aa-attempt"] for d in await stage.dead_letters("failing")]
    assert len(resting) == len(cases)
    assert set(resting) <= {1, MAX}
    await stage.place.api("DELETE", "queues/{}/agent.failing.dlq/contents")


@pytest.mark.parametrize("claimed", [2, 3, MAX, MAX + 1, 1_000_000])
async def test_an_attempt_claimed_from_outside_is_never_more_attempts(
    stage: Stage, claimed: int
) -> None:
    body, message_id = body_of("failing", 1)
    case = odd(stage, "failing", body, message_id)
    header = (b"aa-attempt", b"I" + struct.pack(">i", claimed))
    await stage.put("failing", body, properties(content_type=JSON, headers=table(header)))
    await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up")
    await canary(stage, "failing")
    await settled(case, "dead")
    bounded(case, MAX)


@pytest.mark.parametrize("deaths", [1, 3, 50])
async def test_the_deaths_of_other_queues_use_up_no_attempt(stage: Stage, deaths: int) -> None:
    body, message_id = body_of("failing", 1)
    case = odd(stage, "failing", body, message_id)
    died = b"A" + long((b"F" + DEATH) * deaths)
    headers = table(
        (b"x-death", died),
        (b"x-first-death-queue", b"S" + long(b"another.queue")),
        (b"x-first-death-reason", b"S" + long(b"expired")),
    )
    await stage.put("failing", body, properties(content_type=JSON, headers=headers))
    await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up")
    await canary(stage, "failing")
    await settled(case, "dead")
    assert stage.broker.deliveries[body] == MAX


async def test_deaths_of_this_very_inbox_lose_nothing(stage: Stage) -> None:
    """RabbitMQ 3.10 would drop a copy that carried them as running in a circle."""
    body, message_id = body_of("paced", 1)
    case = odd(stage, "paced", body, message_id)
    died = table(
        *((b"count", i64(2)), (b"reason", b"S" + long(b"expired"))),
        *((b"queue", b"S" + long(b"agent.paced")), (b"exchange", b"S" + long(b"agent.direct"))),
    )
    headers = table((b"x-death", b"A" + long(b"F" + died)))
    await stage.put("paced", body, properties(content_type=JSON, headers=headers))
    await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up")
    await canary(stage, "paced")
    await settled(case, "dead")
    assert stage.broker.deliveries[body] == 3


@pytest.mark.parametrize("attempt", [1, 2, 10**3, 10**9, 10**18, 2**63 - 1, 10**400])
@pytest.mark.parametrize("base", [0.0, 1.0, 3600.0])
async def test_the_backoff_is_a_small_number_at_once_for_any_attempt(
    attempt: int, base: float
) -> None:
    began = time.monotonic()
    seconds = backoff_seconds(attempt, RetryPolicy(base_seconds=base, cap_seconds=60))
    assert 0 <= seconds <= 60
    assert time.monotonic() - began < 0.1


@pytest.mark.parametrize(
    "suggested", [10**9, 10**400, -1, float("nan"), float("inf"), "7", True, [1], None]
)
async def test_a_suggested_wait_of_any_kind_breaks_nothing(stage: Stage, suggested: Any) -> None:
    SUGGESTED.append(suggested)
    body, message_id = body_of("advised", 1, ttl=None)
    await stage.put("advised", body)
    await until(lambda: stage.journal.count("retried", message_id) == 1, "retried")
    await canary(stage, "advised")
    assert stage.broker.deliveries[body] <= 2
