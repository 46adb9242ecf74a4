"""Every way to write one instant is the same instant; what is none is refused by rule."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.cases.checks import bounded, canary, odd, settled, told
from tests.cases.stage import Stage, body_of
from tests.nodes.rawpub import properties, short

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

Write = Callable[[datetime], Any]


def iso(moment: datetime, hours: float = 0) -> str:
    return moment.astimezone(timezone(timedelta(hours=hours))).isoformat()


SAME: dict[str, Write] = {
    "without a zone": lambda now: now.strftime("%Y-%m-%dT%H:%M:%S"),
    "a space for the T": lambda now: now.strftime("%Y-%m-%d %H:%M:%S"),
    "Z": lambda now: now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "z": lambda now: now.strftime("%Y-%m-%dt%H:%M:%Sz"),
    "+00:00": lambda now: iso(now),
    "+08:00": lambda now: iso(now, 8),
    "-03:30": lambda now: iso(now, -3.5),
    "+0800": lambda now: now.astimezone(timezone(timedelta(hours=8))).strftime("%FT%T%z"),
    "compact": lambda now: now.strftime("%Y%m%dT%H%M%SZ"),
    "epoch seconds": lambda now: int(now.timestamp()),
    "epoch seconds with a fraction": lambda now: now.timestamp(),
    "epoch milliseconds": lambda now: int(now.timestamp() * 1000),
    "milliseconds": lambda now: now.strftime("%Y-%m-%dT%H:%M:%S.123Z"),
    "microseconds": lambda now: now.strftime("%Y-%m-%dT%H:%M:%S.123456Z"),
    "9 digits": lambda now: now.strftime("%Y-%m-%dT%H:%M:%S.123456789Z"),
    "1 digit": lambda now: now.strftime("%Y-%m-%dT%H:%M:%S.1+00:00"),
    "surrounded by blanks": lambda now: now.strftime(" %Y-%m-%dT%H:%M:%SZ\n"),
}
NONE: dict[str, Any] = {
    "day first": "13/07/2026",
    "empty": "",
    "words": "yesterday",
    "broken offset": "2026-06-24T10:21:0008:00",
    "month 13": "2026-13-01T00:00:00Z",
    "true": True,
    "list": [2026, 7, 13],
    "object": {"seconds": 1},
    "year 0": "0000-01-01T00:00:00Z",
    "before year 1": "0001-01-01T00:00:00+14:00",
    "nanoseconds": 1_772_000_000_000_000_000,
    "10**400": 10**400,
    "digits as text": "1772000000",
}
NAMES = ("timestamp", "created_at")


def written(name: str, value: Any, **fields: Any) -> tuple[bytes, str]:
    body, message_id = body_of("work", ttl=300)
    data = json.loads(body) | fields
    del data["timestamp"]
    if value is not ...:
        data[name] = value
    return json.dumps(data).encode(), message_id


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", SAME)
async def test_one_instant_however_it_is_written(stage: Stage, name: str, way: str) -> None:
    now = datetime.now(UTC)
    body, message_id = written(name, SAME[way](now))
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body)
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    read = next(e for e in stage.journal.entries if e.message.message_id == message_id)
    assert abs((read.message.timestamp - now).total_seconds()) < 2
    assert read.message.timestamp.utcoffset() == timedelta(0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", NONE)
async def test_what_is_no_instant_is_an_invalid_payload(stage: Stage, name: str, what: str) -> None:
    body, message_id = written(name, NONE[what])
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body)
    await canary(stage, "work")
    resting = await settled(case, "dead")
    bounded(case)
    fields = told(case, "INVALID_PAYLOAD")
    assert "timestamp" in fields["reason"]
    assert resting is not None
    assert resting.properties.headers["aa-fault-code"] == "INVALID_PAYLOAD"


@pytest.mark.parametrize("value", [None, ...], ids=["null", "missing"])
@pytest.mark.parametrize("with_property", [True, False])
async def test_without_an_instant_the_property_counts_or_the_arrival(
    stage: Stage, value: Any, with_property: bool
) -> None:
    """Undated, a message is as young as it can be: never silently expired."""
    now = datetime.now(UTC)
    body, message_id = written("timestamp", value)
    sent = int(now.timestamp()) - 100
    stamp = {"timestamp": sent.to_bytes(8, "big")} if with_property else {}
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body, properties(content_type=short(b"application/json"), **stamp))
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    read = next(e for e in stage.journal.entries if e.message.message_id == message_id)
    age = (now - read.message.timestamp).total_seconds()
    assert abs(age - (100 if with_property else 0)) < 2


@pytest.mark.parametrize("both", [(0, 0), (0, 3600)])
async def test_two_names_for_one_instant_must_agree(stage: Stage, both: tuple[int, int]) -> None:
    now = datetime.now(UTC)
    first, second = (iso(now + timedelta(seconds=each)) for each in both)
    body, message_id = written("timestamp", first, created_at=second)
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body)
    await canary(stage, "work")
    await settled(case, "handled" if both[0] == both[1] else "dead")
    bounded(case)


@pytest.mark.parametrize("age_hours", [-8, 8, -14, 14])
async def test_an_age_of_hours_is_hours_not_a_zone(stage: Stage, age_hours: int) -> None:
    """Eight hours old is expired; eight hours ahead is as good as new."""
    moment = datetime.now(UTC) - timedelta(hours=age_hours)
    body, message_id = written("timestamp", moment.strftime("%Y-%m-%dT%H:%M:%S"))
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body)
    await canary(stage, "work")
    await settled(case, "dead" if age_hours > 0 else "handled")
    bounded(case)


async def test_what_is_written_carries_its_zone(stage: Stage) -> None:
    body, _ = body_of("work")
    stamp = json.loads(body)["timestamp"]
    assert stamp.endswith("Z")
    assert datetime.fromisoformat(stamp).utcoffset() == timedelta(0)
    naive = datetime(2026, 1, 1, 12)
    body, _ = body_of("work", timestamp=naive, ttl=None)
    assert json.loads(body)["timestamp"] == "2026-01-01T12:00:00.000Z"
