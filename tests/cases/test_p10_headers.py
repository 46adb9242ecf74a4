"""Header values AMQP cannot carry are refused by name, before a byte is sent."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from amqp_agents import Outgoing
from amqp_agents.brokers.base import Publishing
from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.names import DIRECT
from tests.cases.checks import canary
from tests.cases.stage import Stage, body_of, message, until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

JSON = "application/json"
REFUSED: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "float": 0.5,
    "2**63": 2**63,
    "-2**63-1": -(2**63) - 1,
    "2**64": 2**64,
    "2**70": 2**70,
    "10**400": 10**400,
    "set": {1, 2},
    "bytes": b"\0",
    "bytearray": bytearray(b"x"),
    "table of bytes": {"a": b"\0"},
    "table": {"a": 1},
    "list": [1, None, {"k": 1.5}],
    "tuple": (1, 2),
    "None": None,
    "Decimal": Decimal("-1.5"),
    "Decimal NaN": Decimal("NaN"),
    "Fraction": Fraction(1, 3),
    "naive datetime": datetime(2026, 1, 1),
    "before 1970": datetime(1969, 12, 31, tzinfo=UTC),
    "timedelta": timedelta(seconds=1),
    "complex": 1j,
    "object": object(),
    "class": int,
    "surrogate": "\ud800",
}
CARRIED: dict[str, Any] = {
    "text": "x",
    "empty text": "",
    "any script": "字\U0001f600\0",
    "true": True,
    "int64": 2**63 - 1,
    "least int64": -(2**63),
    "uint32": 2**32 - 1,
    "aware datetime": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=8))),
    "60 kB": "x" * 60_000,
}
NAMES: dict[str, Any] = {
    "256 characters": "k" * 256,
    "129 characters": "k" * 129,
    "129 bytes": "ü" * 65,
    "empty": "",
    "surrogate": "\udfff",
    "number": 7,
    "None": None,
}


async def amid_good_ones(stage: Stage, headers: dict[Any, Any], **props: Any) -> Any:
    """Publish with these headers, five good ones before and three after, and a consumer."""
    good = [message("work", n) for n in range(8)]
    opened = stage.broker.connections
    odd = Publishing(
        DIRECT, "neighbour", body_of("neighbour")[0], Properties(headers=headers, **props)
    )
    answers = await asyncio.gather(
        *map(stage.caller.publish, good[:5]),
        stage.caller.broker.publish(odd, timeout_seconds=5),
        *map(stage.caller.publish, good[5:]),
        return_exceptions=True,
    )
    answer = answers.pop(5)
    assert answers == [None] * 8
    await until(
        lambda: all(stage.journal.count("handled", each.message_id) == 1 for each in good),
        "the good ones handled",
    )
    assert stage.broker.connections == opened
    return answer


@pytest.mark.parametrize("what", REFUSED)
async def test_a_header_that_cannot_be_carried_is_refused_by_name(stage: Stage, what: str) -> None:
    before = stage.broker.deliveries.total()
    answer = await amid_good_ones(stage, {"score": REFUSED[what]}, content_type=JSON)
    assert isinstance(answer, InvalidPayloadError)
    assert "header 'score'" in str(answer)
    assert stage.broker.deliveries.total() == before + 8


@pytest.mark.parametrize("what", NAMES)
async def test_a_header_name_that_would_be_cut_is_refused(stage: Stage, what: str) -> None:
    answer = await amid_good_ones(stage, {NAMES[what]: 1}, content_type=JSON)
    assert isinstance(answer, InvalidPayloadError)
    assert "header" in str(answer)


async def test_headers_that_are_too_many_are_refused(stage: Stage) -> None:
    for headers in ({"h": "x" * 70_000}, {f"h{n}": "x" * 100 for n in range(1000)}):
        answer = await amid_good_ones(stage, headers, content_type=JSON)
        assert isinstance(answer, InvalidPayloadError)
        assert "65536" in str(answer)


@pytest.mark.parametrize("what", CARRIED)
async def test_a_header_that_can_be_carried_arrives_equal(stage: Stage, what: str) -> None:
    value = CARRIED[what]
    stage.broker.seen.clear()
    assert await amid_good_ones(stage, {"h": value}, content_type=JSON) is None
    await canary(stage, "neighbour")
    headers = [each.properties.headers for each in stage.broker.seen]
    assert [each["h"] for each in headers if "h" in each] == [value]


@pytest.mark.parametrize(
    "name",
    ["content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id"],
)
@pytest.mark.parametrize("value", ["x" * 256, "ü" * 128, "\ud800", 7, b"x"])
async def test_a_property_that_cannot_be_carried_is_refused_by_name(
    stage: Stage, name: str, value: Any
) -> None:
    answer = await amid_good_ones(stage, {}, **{name: value})
    assert isinstance(answer, InvalidPayloadError)
    assert name in str(answer)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", 256),
        ("priority", -1),
        ("priority", 1.5),
        ("expiration_ms", -1),
        ("expiration_ms", 2**32),
        ("expiration_ms", 0.5),
        ("timestamp", datetime(2026, 1, 1)),
        ("timestamp", datetime(1969, 1, 1, tzinfo=UTC)),
        ("timestamp", 1_772_000_000),
    ],
)
async def test_a_number_out_of_range_is_refused_by_name(
    stage: Stage, name: str, value: Any
) -> None:
    answer = await amid_good_ones(stage, {}, **{name: value})
    assert isinstance(answer, InvalidPayloadError)
    assert name in str(answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("intent", "x" * 70_000),
        ("intent", "\ud800"),
        ("idempotency_key", "k" * 70_000),
        ("ttl", "soon"),
        ("priority", 300),
        ("evidence_refs", [1]),
        ("type", "t" * 256),
        ("sensitivity", "secret"),
    ],
)
async def test_what_a_user_may_set_is_refused_by_name(stage: Stage, field: str, value: Any) -> None:
    before = stage.broker.deliveries.total()

    async def sending() -> None:
        await stage.caller.publish(Outgoing({"n": 1}, to="neighbour", **{field: value}))

    with pytest.raises(InvalidPayloadError):
        await sending()
    await canary(stage, "work")
    assert stage.broker.deliveries.total() == before + 1
