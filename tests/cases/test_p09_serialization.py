"""A value arrives as it was sent, with the digest it was sent with, or is refused by its place."""

import enum
import json
import math
import uuid
from collections import OrderedDict, UserDict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from amqp_agents import Outgoing
from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol import payload_digest
from tests.cases.checks import canary
from tests.cases.stage import Stage, until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

REFUSED: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "NaN in a list": [1, [float("nan")]],
    "Decimal": Decimal("1.10"),
    "Decimal NaN": Decimal("NaN"),
    "bytes of no text": b"\xff",
    "bytes": b"ab",
    "bytearray": bytearray(b"ab"),
    "int keys": {1: "a"},
    "keys that become one": {1: "a", "1": "b"},
    "None as a key": {None: 1},
    "bool as a key": {True: 1},
    "tuple as a key": {(1, 2): 1},
    "set": {1},
    "frozenset": frozenset({1}),
    "aware datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "naive datetime": datetime(2026, 1, 1),
    "date": date(2026, 1, 1),
    "time": time(12),
    "timedelta": timedelta(seconds=90),
    "uuid": uuid.UUID(int=1),
    "complex": 1j,
    "object": object(),
    "class": int,
    "function": len,
    "half a surrogate pair": "\ud800",
    "half a surrogate pair as a key": {"\udfff": 1},
    "deque": deque([1]),
    "generator": (n for n in range(3)),
    "plain enum": enum.Enum("Colour", "RED").RED,  # type: ignore[attr-defined]
    "mapping that is no dict": UserDict({"a": 1}),
    "integer of 5,000 digits": 10**5000,
    "deeper than any reader": json.loads("[" * 200 + "]" * 200),
}
KEPT: dict[str, Any] = {
    "2**64": 2**64,
    "2**53": 2**53,
    "-2**63": -(2**63),
    "10**40": 10**40,
    "1.0": 1.0,
    "-0.0": -0.0,
    "1e22": 1e22,
    "1e-7": 1e-7,
    "smallest": 5e-324,
    "largest": 1.7976931348623157e308,
    "0.1 + 0.2": 0.1 + 0.2,
    "int enum": enum.IntEnum("Level", "LOW").LOW,  # type: ignore[attr-defined]
    "text enum": enum.StrEnum("Colour", {"RED": "red"}).RED,  # type: ignore[attr-defined]
    "ordered dict": OrderedDict(z=1, a=2),
    "null": None,
    "true": True,
    "empty": {"list": [], "dict": {}, "text": ""},
    "any script": "naïve 字 \U0001f600 \u2028 \0",
    "keys of any script": {"é": 1, "\U0001f600": 2, "\uffff": 3, "": 4},
    "escapes": 'quote " backslash \\ slash / <script>',
    "nested": {"a": [{"b": [1, 2.5, None, {"c": "d"}]}]},
    "100 levels": json.loads("[" * 100 + "]" * 100),
}


async def sent(stage: Stage, value: Any) -> Any:
    """Publish it, with a digest made beforehand; the message as it was handled."""
    payload = {"n": 1, "x": value}
    digest = payload_digest(payload)
    before = len(stage.journal.entries)
    await stage.caller.publish(Outgoing(payload, to="work"))
    await until(lambda: len(stage.journal.entries) > before, "handled")
    entry = stage.journal.entries[-1]
    assert entry.what == "handled"
    assert entry.message.payload_digest == digest
    assert payload_digest(entry.message.payload) == digest
    json.loads(stage.broker.seen[-1].body, parse_constant=pytest.fail)
    return entry.message.payload["x"]


@pytest.mark.parametrize("what", KEPT)
async def test_a_value_json_can_carry_arrives_equal(stage: Stage, what: str) -> None:
    value = KEPT[what]
    arrived = await sent(stage, value)
    assert arrived == value
    if isinstance(value, float):
        assert math.copysign(1, arrived) == math.copysign(1, value)


@pytest.mark.parametrize("what", REFUSED)
async def test_a_value_json_cannot_carry_is_refused_by_its_place(stage: Stage, what: str) -> None:
    before = stage.broker.deliveries.total()
    with pytest.raises(InvalidPayloadError, match=r"payload\.x"):
        await stage.caller.publish(Outgoing({"n": 1, "x": REFUSED[what]}, to="work"))
    await canary(stage, "work")
    assert stage.broker.deliveries.total() == before + 1


class Loose(BaseModel):
    n: int = 1
    x: Any = None


class Typed(BaseModel):
    """Types that pydantic writes as text, and reads back equal."""

    n: int = 1
    money: Decimal
    at: datetime
    waits: timedelta
    raw: bytes
    pair: tuple[int, str]
    tags: set[int]
    by_number: dict[int, str]
    score: float = 0.5


LOST_BY_MODELS = ["NaN", "infinity", "NaN in a list", "keys that become one", "object", "function"]


@pytest.mark.parametrize("what", LOST_BY_MODELS)
async def test_a_model_loses_no_value_silently(stage: Stage, what: str) -> None:
    before = stage.broker.deliveries.total()
    with pytest.raises(InvalidPayloadError):
        await stage.caller.publish(Outgoing(Loose(x=REFUSED[what]), to="work"))
    await canary(stage, "work")
    assert stage.broker.deliveries.total() == before + 1


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
async def test_a_typed_float_is_refused_by_its_place(stage: Stage, score: float) -> None:
    with pytest.raises(InvalidPayloadError, match=r"payload\.score"):
        await stage.caller.publish(Outgoing(typed(score=score), to="work"))


def typed(**fields: Any) -> Typed:
    return Typed(
        money=Decimal("1.10"),
        at=datetime(2026, 1, 1, 12, tzinfo=UTC),
        waits=timedelta(seconds=90),
        raw=b"ab",
        pair=(1, "b"),
        tags={1, 2},
        by_number={1: "a"},
        **fields,
    )


async def test_a_typed_model_reads_back_equal(stage: Stage) -> None:
    before = len(stage.journal.entries)
    await stage.caller.publish(Outgoing(typed(), to="work"))
    await until(lambda: len(stage.journal.entries) > before, "handled")
    assert Typed.model_validate(stage.journal.entries[-1].message.payload) == typed()


@pytest.mark.xfail(strict=True, reason="needs: idempotency ledger")
@pytest.mark.parametrize("what", ["2**64", "1.0", "any script", "nested"])
async def test_the_same_value_again_is_a_duplicate(stage: Stage, what: str) -> None:
    before = len(stage.journal.entries)
    for _ in range(2):
        again = Outgoing({"n": 1, "x": KEPT[what]}, to="work", idempotency_key=f"key-{what}")
        await stage.caller.publish(again)
    await until(lambda: len(stage.journal.entries) == before + 2, "both settled")
    assert [e.what for e in stage.journal.entries[before:]] == ["handled", "duplicate"]
