"""A time that no calendar has, and whatever else a decoder chokes on, stops nobody."""

import asyncio
import struct
from urllib.parse import quote

import pytest

from tests.cases.checks import bounded, canary, not_told, odd, settled, told
from tests.cases.stage import JSON, Stage, body_of
from tests.nodes.rawpub import Refused, long, properties, publish_raw, short, table

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]


def u64(value: int) -> bytes:
    return (value % 2**64).to_bytes(8, "big")


def header(value: bytes, key: bytes = b"sent_at") -> bytes:
    return properties(content_type=JSON, headers=table((key, value)))


def stamped(seconds: int) -> bytes:
    return properties(content_type=JSON, timestamp=u64(seconds))


NANO, MICRO = 1_772_000_000_000_000_000, 1_772_000_000_000_000
DEEP = b"V"
for _ in range(40):
    DEEP = b"F" + table((b"k", DEEP))

UNREADABLE = {
    "microseconds": stamped(MICRO),
    "nanoseconds": stamped(NANO),
    "largest": stamped(2**64 - 1),
    "1969": stamped(-14_255_999),
    "signed minimum": stamped(2**63),
    "first beyond the calendar": stamped(253_402_300_800_000),
    "header in microseconds": header(b"T" + u64(MICRO)),
    "header in nanoseconds": header(b"T" + u64(NANO)),
    "header before 1970": header(b"T" + u64(-1)),
    "in a table": header(b"F" + table((b"at", b"T" + u64(MICRO)))),
    "in an array": header(b"A" + long(b"T" + u64(MICRO) + b"T" + u64(NANO))),
    "in a table in an array": header(b"A" + long(b"F" + table((b"at", b"T" + u64(NANO))))),
    "both": properties(
        content_type=JSON, headers=table((b"t", b"T" + u64(NANO))), timestamp=u64(NANO)
    ),
    "header text of another charset": header(b"S" + long(b"caf\xe9")),
    "header name of another charset": header(b"V", key=b"caf\xe9"),
    "correlation_id of another charset": properties(
        content_type=JSON, correlation_id=short(b"\xe9")
    ),
    "type of another charset": properties(content_type=JSON, type=short(b"\xff\xfe")),
    "app_id of another charset": properties(content_type=JSON, app_id=short(b"\xe9")),
    "message_id of another charset": properties(content_type=JSON, message_id=short(b"\xe9")),
    "reply_to of another charset": properties(content_type=JSON, reply_to=short(b"\xe9")),
    "deeper than the stack": header(DEEP),
}
READABLE = {
    "milliseconds": stamped(1_772_000_000_000),
    "seconds": stamped(1_772_000_000),
    "epoch": stamped(0),
    "header void": header(b"V"),
    "header float": header(b"d" + struct.pack(">d", 0.5)),
    "header decimal": header(b"D" + bytes([255]) + struct.pack(">i", -1)),
    "header bytes": header(b"x" + long(b"\xff\x00")),
    "header empty array": header(b"A" + long(b"")),
    "header empty table": header(b"F" + table()),
    "header int8": header(b"b" + b"\x80"),
    "header uint8": header(b"B" + b"\xff"),
    "header int16": header(b"s" + b"\x80\x00"),
    "header uint16": header(b"u" + b"\xff\xff"),
    "header int32": header(b"I" + b"\x80\x00\x00\x00"),
    "header uint32": header(b"i" + b"\xff\xff\xff\xff"),
    "header int64": header(b"l" + u64(2**63)),
    "header boolean": header(b"t" + b"\x07"),
    "header without a name": header(b"V", key=b""),
    "header twice": properties(content_type=JSON, headers=table((b"k", b"V"), (b"k", b"V"))),
}


REFUSED = {
    "not a number": b"d" + struct.pack(">d", float("nan")),
    "infinite": b"f" + struct.pack(">f", float("inf")),
    "type Z": b"Z\x00\x00\x00\x01",
    "type 0": b"\x00\x00\x00\x00\x01",
    "type m": b"m\x00\x00\x00\x01",
    "cut off": b"S\x00\x00\xff\xff",
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_what_cannot_be_read_is_left_out_and_told(stage: Stage, what: str) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body, UNREADABLE[what])
    await canary(stage, "work")
    await canary(stage, "neighbour")
    await settled(case, "handled")
    bounded(case)
    told(case, "", event="property_unreadable")


@pytest.mark.parametrize("what", READABLE)
async def test_what_can_be_read_is_handled_without_a_word(stage: Stage, what: str) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body, READABLE[what])
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    not_told(case, "property_unreadable", "delivery_dead")


async def test_what_cannot_be_read_is_handled_when_it_comes_by_an_event_too(stage: Stage) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    await publish_raw(
        stage.place.url, b"agent.work", body, stamped(MICRO), exchange=b"agent.events"
    )
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    fields = told(case, "timestamp", event="property_unreadable")
    assert str(MICRO) in fields["reason"]


@pytest.mark.parametrize("name", ["büro", "x" * 255, "a b", "a'b"])
async def test_an_exchange_of_any_name_brings_what_is_handled(stage: Stage, name: str) -> None:
    path = f"exchanges/{{}}/{quote(name, safe='')}"
    await stage.place.api("PUT", path, {"type": "fanout", "durable": True})
    bound = f"bindings/{{}}/e/{quote(name, safe='')}/q/agent.work"
    await stage.place.api("POST", bound, {"routing_key": "", "arguments": {}})
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    await publish_raw(stage.place.url, b"caf\xe9", body, stamped(0), exchange=name.encode())
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    await stage.place.api("DELETE", path)


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
async def test_what_the_broker_itself_refuses_stops_nobody(stage: Stage, value: bytes) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    try:
        await stage.put("work", body, header(value))
    except (Refused, asyncio.IncompleteReadError):
        await canary(stage, "work")
    else:
        await canary(stage, "work")
        await settled(case, "handled")
    bounded(case)
