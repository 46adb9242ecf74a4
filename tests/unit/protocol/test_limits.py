from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.limits import carriable, check_body, check_properties
from amqp_agents.protocol.properties import Properties

AT_LIMIT = Properties(
    content_type="c" * 255,
    content_encoding="é" * 127,
    headers={
        "k" * 128: "v",
        "é" * 64: 2**63 - 1,
        "low": -(2**63),
        "yes": True,
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "long": "x" * 60_000,
    },
    priority=255,
    correlation_id="c" * 255,
    reply_to="",
    expiration_ms=2**32 - 1,
    message_id="m" * 255,
    timestamp=datetime(9999, 12, 31, tzinfo=UTC),
    type="t" * 255,
    user_id="u" * 255,
    app_id="a" * 255,
)


def test_everything_at_its_limit_passes_and_encodes() -> None:
    check_properties(AT_LIMIT)
    assert len(encoded(AT_LIMIT)) < 131_072


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"correlation_id": "é" * 128}, "correlation_id has 256 bytes, the limit is 255"),
        ({"reply_to": "r" * 256}, "reply_to has 256 bytes, the limit is 255"),
        ({"type": "\ud800"}, "type must be text that UTF-8 can carry, not half a surrogate pair"),
        ({"app_id": 7}, "app_id must be text"),
        ({"priority": 256}, "priority must be a whole number from 0 to 255"),
        ({"priority": True}, "priority must be"),
        ({"priority": -1}, "priority must be"),
        ({"expiration_ms": 2**32}, "expiration_ms must be a whole number from 0 to 4294967295"),
        ({"expiration_ms": -1}, "expiration_ms must be"),
        ({"expiration_ms": 1.5}, "expiration_ms must be"),
        ({"timestamp": datetime(2026, 1, 1)}, "timestamp must be a datetime with offset"),
        ({"timestamp": datetime(1969, 12, 31, tzinfo=UTC)}, "timestamp must be"),
        ({"timestamp": 1}, "timestamp must be"),
        ({"headers": {"k" * 129: 1}}, "header 'kk"),
        ({"headers": {"": 1}}, "header '' must be named by non-empty text"),
        ({"headers": {1: 1}}, "header '1' must be named by non-empty text"),
        ({"headers": {"\ud800": 1}}, "header"),
        ({"headers": {"ratio": 0.5}}, "header 'ratio' is a float; headers carry text"),
        ({"headers": {"ratio": float("nan")}}, "header 'ratio' is a float"),
        ({"headers": {"n": 2**63}}, "header 'n' is an integer beyond 64 bits"),
        ({"headers": {"n": -(2**63) - 1}}, "header 'n' is an integer beyond 64 bits"),
        ({"headers": {"n": None}}, "header 'n' is a NoneType"),
        ({"headers": {"n": b""}}, "header 'n' is a bytes"),
        ({"headers": {"n": []}}, "header 'n' is a list"),
        ({"headers": {"n": {}}}, "header 'n' is a dict"),
        ({"headers": {"n": "\udc00"}}, "header 'n' holds half a surrogate pair"),
        ({"headers": {"n": datetime(2026, 1, 1)}}, "header 'n' is a moment without offset"),
        ({"headers": {"n": "x" * 65_536}}, "the headers have 65547 bytes together, the limit"),
        ({"headers": {f"n{i}": "é" * 500 for i in range(70)}}, "the headers have"),
    ],
)
def test_beyond_a_limit_the_field_and_the_limit_are_named(
    fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidPayloadError) as caught:
        check_properties(Properties(**fields))
    assert str(caught.value).startswith(sentence)
    str(caught.value).encode()


def test_a_body_over_the_limit_is_refused_with_a_way_out() -> None:
    check_body(b"x" * 10, 10)
    with pytest.raises(InvalidPayloadError, match=r"11 bytes, the limit is 10 .* a reference"):
        check_body(b"x" * 11, 10)


def test_what_a_foreign_sender_put_into_headers_is_left_out_of_copies() -> None:
    foreign = {"keep": "1", "x-death": [{"count": 1}], "ratio": 0.1, "\ud800": 1, "none": None}
    kept = carriable(foreign)
    assert kept == {"keep": "1"}
    check_properties(Properties(headers=kept))


anything = (
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats()
    | st.text(max_size=300)
    | st.text("é😀", max_size=300)
    | st.binary(max_size=4)
    | st.datetimes()
    | st.datetimes(timezones=st.just(timezone(timedelta(hours=-11))))
    | st.lists(st.integers(), max_size=1)
)


@given(
    headers=st.dictionaries(st.text(max_size=140) | st.integers(), anything, max_size=4),
    names=st.tuples(*[anything] * 8),
    priority=anything,
    expiration=anything,
    timestamp=anything,
)
def test_what_passes_can_be_encoded(
    headers: dict[Any, Any], names: tuple[Any, ...], priority: Any, expiration: Any, timestamp: Any
) -> None:
    fields = ("content_type", "content_encoding", "correlation_id", "reply_to")
    fields += ("message_id", "type", "user_id", "app_id")
    properties = Properties(
        headers=headers,
        priority=priority,
        expiration_ms=expiration,
        timestamp=timestamp,
        **dict(zip(fields, names, strict=True)),
    )
    try:
        check_properties(properties)
    except InvalidPayloadError as error:
        str(error).encode()
        return
    encoded(properties)


@given(st.dictionaries(st.text(max_size=140), anything, max_size=6))
def test_what_is_carriable_can_be_encoded(headers: dict[str, Any]) -> None:
    properties = Properties(headers=carriable(headers))
    check_properties(properties)
    encoded(properties)


def encoded(properties: Properties) -> bytes:
    expiration = properties.expiration_ms
    fields = Basic.Properties(
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        headers=dict(properties.headers),
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        expiration=None if expiration is None else str(expiration),
        message_id=properties.message_id,
        timestamp=properties.timestamp,
        message_type=properties.type,
        user_id=properties.user_id,
        app_id=properties.app_id,
    )
    return ContentHeader(0, 0, fields).marshal()
