"""Whatever a handler raises fits into the dead letter, and into the answer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from amqp_agents import (
    AgentCommunicationError,
    ErrorCode,
    PermissionDeniedError,
    RetryPolicy,
    agent,
)
from amqp_agents.pipeline import Delivery
from tests.cases.checks import bounded, canary, odd, settled, told
from tests.cases.stage import Place, Stage, Work, body_of, message, on_stage, until
from tests.nodes.rawpub import long, properties, short, table

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

ROOM_BYTES = 65_536  # half of the smallest frame a broker offers by default
RAISED: dict[int, Any] = {}


class Unspeakable(Exception):  # noqa: N818 - named for what it does
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Mute(Exception):  # noqa: N818
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


def chained(depth: int) -> Exception:
    error: Exception = ValueError("z" * 2000)
    for n in range(depth):
        outer = ValueError(f"{n} " + "z" * 2000)
        outer.__cause__ = error
        error = outer
    return error


def noted() -> Exception:
    error = ValueError("short")
    error.add_note("n" * 200_000)
    return error


ERRORS = {
    "200 kB": lambda: ValueError("z" * 200_000),
    "three bytes a character": lambda: ValueError("字" * 70_000),
    "four bytes a character": lambda: ValueError("\U0001f600" * 70_000),
    "half a surrogate pair": lambda: ValueError("\ud800" * 70_000),
    "control characters": lambda: ValueError("\0\r\n\x1b[31m" * 30_000),
    "no text at all": lambda: ValueError(),
    "text that raises": Unspeakable,
    "text that is no text": Mute,
    "chain of 50": lambda: chained(50),
    "notes": noted,
    "group": lambda: ExceptionGroup("many", [ValueError("z" * 10_000) for _ in range(50)]),
    "arguments": lambda: ValueError(*("z" * 1000 for _ in range(200))),
    "bytes": lambda: ValueError(b"\xff" * 200_000),
    "long class name": lambda: type("E" * 5000, (Exception,), {})("x"),
    "not retryable": lambda: PermissionDeniedError("z" * 200_000),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    @agent("work", concurrency=1, retry=RetryPolicy(max_attempts=1))
    async def work(given: Work) -> None:
        if given.n in RAISED:
            raise RAISED[given.n]()

    @agent("stubborn", concurrency=1, retry=RetryPolicy(max_attempts=20, base_seconds=0))
    async def stubborn(given: Work) -> None:
        if given.n:
            raise ValueError(f"{given.n}" + "z" * 10_000)

    async with on_stage(shared_place, work, stubborn, stack_traces=True) as stage:
        yield stage


def header_bytes(delivery: Delivery) -> int:
    pairs = delivery.properties.headers.items()
    return sum(len(key.encode()) + len(str(value).encode()) + 12 for key, value in pairs)


async def given_up(stage: Stage, name: str, sent: Any, *, deliveries: int = 1) -> Delivery:
    case = odd(stage, name, b"", sent.message_id)
    await stage.caller.publish(sent)
    await until(lambda: stage.journal.count("dead-lettered", sent.message_id) == 1, "given up")
    await canary(stage, name)
    resting = [
        letter
        for letter in await stage.dead_letters(name)
        if letter.properties.headers["aa-message-id"] == sent.message_id
    ]
    assert len(resting) == 1
    assert await stage.depth(f"agent.{name}") == 0
    case.body = resting[0].body
    bounded(case, deliveries)
    assert stage.broker.deliveries[case.body] == deliveries
    told(case, "")
    return resting[0]


@pytest.mark.parametrize("what", ERRORS)
async def test_any_error_is_cut_to_fit(stage: Stage, what: str) -> None:
    number = list(ERRORS).index(what) + 1
    RAISED[number] = ERRORS[what]
    sent = message("work", number)
    resting = await given_up(stage, "work", sent)
    headers = resting.properties.headers
    assert header_bytes(resting) < ROOM_BYTES
    assert 1 <= len(headers["aa-fault-message"].encode()) <= 2048
    assert "\ufffd" not in headers["aa-fault-message"]
    assert headers["aa-fault-type"]
    assert len(headers["aa-fault-stack"].encode()) <= 8192
    assert resting.properties.type == sent.type
    assert resting.properties.correlation_id == sent.correlation_id


@pytest.mark.parametrize("what", ERRORS)
async def test_the_answer_to_a_waiting_caller_is_cut_too(stage: Stage, what: str) -> None:
    number = list(ERRORS).index(what) + 1
    RAISED[number] = ERRORS[what]
    with pytest.raises(AgentCommunicationError) as failed:
        await stage.caller.request("work", {"n": number}, timeout_seconds=5)
    assert len(str(failed.value).encode("utf-8", "replace")) < 4096
    assert failed.value.failed_agent == "work"
    assert failed.value.code in (ErrorCode.UNKNOWN, ErrorCode.PERMISSION_DENIED)


async def test_headers_do_not_grow_with_the_attempts(stage: Stage) -> None:
    resting = await given_up(stage, "stubborn", message("stubborn", 5), deliveries=20)
    assert resting.properties.headers["aa-attempt"] == 20
    assert header_bytes(resting) < 16_384


async def test_a_message_with_as_many_headers_as_fit_is_given_up_all_the_same(
    stage: Stage,
) -> None:
    """A foreign sender's headers leave room for the reason: what does not fit is left behind."""
    heavy = table(*((b"h%d" % n, b"S" + long(b"v" * 1000)) for n in range(110)))
    props = properties(content_type=short(b"application/json"), headers=heavy)
    body = b'{"no": "message", "heavy": true}'
    case = odd(stage, "work", body)
    await stage.put("work", body, props)
    await canary(stage, "work")
    resting = await settled(case, "dead")
    assert resting is not None
    assert resting.properties.headers["aa-fault-code"] == "INVALID_PAYLOAD"
    assert header_bytes(resting) < ROOM_BYTES
    bounded(case)


async def test_foreign_headers_do_not_grow_with_the_attempts(stage: Stage) -> None:
    props = properties(
        content_type=short(b"application/json"),
        headers=table(
            (b"nested", b"F" + table((b"k", b"S" + long(b"v" * 5000)))),
            (b"ratio", b"d" + b"\x3f\xe0" + b"\0" * 6),
            (b"raw", b"x" + long(b"\xff" * 1000)),
        ),
    )
    body, message_id = body_of("stubborn", 1)
    case = odd(stage, "stubborn", body, message_id)
    await stage.put("stubborn", body, props)
    await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up")
    await canary(stage, "stubborn")
    resting = await settled(case, "dead")
    bounded(case, 20)
    assert resting is not None
    assert header_bytes(resting) < 16_384


async def test_many_long_errors_at_once(stage: Stage) -> None:
    RAISED[999] = ERRORS["200 kB"]
    sent = [message("work", 999) for _ in range(20)]
    await asyncio.gather(*(stage.caller.publish(each) for each in sent))
    await until(
        lambda: all(stage.journal.count("dead-lettered", m.message_id) == 1 for m in sent), "all"
    )
    await canary(stage, "work")
