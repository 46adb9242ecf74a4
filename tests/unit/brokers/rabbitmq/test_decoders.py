"""Decoders that must read anything: one exception in them would end the connection."""

import math
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import commands, decode, encode, header

from amqp_agents.brokers.rabbitmq import decoders

LONGEST = 65_536


@pytest.fixture(autouse=True)
def installed() -> None:
    decoders.install()


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(st.binary(min_size=8, max_size=8))
@example(b"\xff" * 8)
def test_every_timestamp_is_a_time_or_says_why_not(value: bytes) -> None:
    consumed, moment = decoders.timestamp(value)
    assert consumed == 8
    assert isinstance(moment, decoders.Unreadable) or moment.tzinfo is UTC


def test_seconds_and_milliseconds_are_told_apart() -> None:
    moment = datetime(2026, 2, 25, 6, 13, 20, tzinfo=UTC)
    for number in (1_772_000_000, 1_772_000_000_000):
        assert decoders.timestamp(struct.pack(">Q", number)) == (8, moment)


@given(st.binary(max_size=255))
def test_every_short_string_is_text(value: bytes) -> None:
    consumed, text = decoders.short_string(bytes([len(value)]) + value + b"behind")
    assert consumed == len(value) + 1
    assert text == value.decode("utf-8", "replace")


@given(st.binary(max_size=2000))
def test_every_table_ends_where_its_length_says(body: bytes) -> None:
    for read, kind in ((decoders.table, dict), (decoders.array, list)):
        consumed, value = read(framed(body) + b"behind")
        assert consumed == len(body) + 4
        assert isinstance(value, kind)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=50)
    | st.binary(max_size=50).map(bytearray)
    | st.datetimes(
        min_value=datetime(1970, 1, 1),
        max_value=datetime(2100, 1, 1),
    ).map(lambda moment: moment.replace(microsecond=0, tzinfo=UTC)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=20), VALUES, max_size=5))
def test_what_the_library_writes_is_read_back(headers: dict[str, object]) -> None:
    wire = encode.field_table(headers)  # type: ignore[arg-type]
    assert decode.by_type(wire, "table") == (len(wire), headers)


def test_a_type_nobody_knows_ends_the_table_but_not_the_reading() -> None:
    body = b"\x01at\x01" + b"\x01bZ????" + b"\x01ct\x01"
    consumed, read = decoders.table(framed(body))
    faults: list[str] = []
    assert consumed == len(body) + 4
    assert decoders.readable(read, "headers", faults) == {"a": True}
    assert faults == ["headers: holds a value of no known type"]


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_no_depth_exhausts_the_stack(kind: bytes) -> None:
    value = b"t\x01"
    for _ in range(5000):
        value = kind + framed((b"\x01k" if kind == b"F" else b"") + value)
    wire = framed(b"\x01k" + value)
    consumed, read = decoders.table(wire)
    assert consumed == len(wire)
    assert list(read) == ["k"]


def test_a_decimal_and_a_double_are_kept() -> None:
    body = b"\x01aD" + struct.pack(">Bi", 2, 150) + b"\x01bd" + struct.pack(">d", 1e300)
    _, read = decoders.table(framed(body))
    assert str(read["a"]) == "1.50"
    assert math.isclose(read["b"], 1e300)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=255), st.binary(max_size=300))
def test_a_whole_content_header_is_read(stamp: int, text: bytes, table: bytes) -> None:
    flags = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 6
    wire = struct.pack(">HHQH", 60, 0, 0, flags) + bytes([len(text)]) + text + framed(table)
    wire += b"\x07" + struct.pack(">Q", stamp)
    content = header.ContentHeader()
    content.unmarshal(wire)
    properties = content.properties
    assert isinstance(properties, commands.Basic.Properties)
    assert properties.delivery_mode == 7
    assert properties.content_type == text.decode("utf-8", "replace")
    assert isinstance(properties.headers, dict)
