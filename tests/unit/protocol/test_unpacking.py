import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_agents.errors import InvalidPayloadError, ProtocolError
from amqp_agents.protocol import AgentMessage, WireLimits, decode
from amqp_agents.protocol.properties import Properties

WRITTEN: dict[str, Any] = {
    "message_id": "M-1",
    "sender": "manager",
    "type": "event",
    "payload": {"note": "订单延迟"},
}
BODY = json.dumps(WRITTEN, ensure_ascii=False).encode()
MESSAGE = AgentMessage.read(WRITTEN)


def read(body: bytes, content_type: str | None = None, encoding: str | None = None) -> str:
    properties = Properties(content_type=content_type, content_encoding=encoding)
    note: str = decode(body, properties).payload["note"]
    return note


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "Application/JSON; charset=utf-8",
        'application/json;charset="UTF8"',
        "application/vnd.amqp-agents.message+json; version=1.0",
        "application/cloudevents+json",
        "application/json; charset=us-ascii",
        "application/json;;",
    ],
)
def test_json_is_read_under_each_of_its_names(content_type: str | None) -> None:
    assert read(BODY, content_type) == "订单延迟"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-protobuf", "json"])
def test_another_content_type_is_refused_with_the_one_to_send(content_type: str) -> None:
    with pytest.raises(InvalidPayloadError, match="is not read; send application/json"):
        read(BODY, content_type)


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_wide_text_is_read_with_and_without_its_charset_named(charset: str) -> None:
    body = BODY.decode().encode(charset)
    assert read(body, f"application/json; charset={charset}") == "订单延迟"
    assert read(body) == "订单延迟"


def test_latin_1_is_read_where_it_is_named() -> None:
    body = json.dumps(WRITTEN | {"payload": {"note": "naïve"}}, ensure_ascii=False)
    assert read(body.encode("latin-1"), "application/json; charset=ISO-8859-1") == "naïve"


def test_a_byte_order_mark_is_ignored() -> None:
    assert read(b"\xef\xbb\xbf" + BODY) == "订单延迟"
    assert read(b"\xef\xbb\xbf" + BODY, "application/json; charset=utf-8") == "订单延迟"


@pytest.mark.parametrize("charset", ["zip", "rot13", "idna", "unicode_escape", "x\0y", "none"])
def test_a_charset_that_is_not_text_for_json_is_refused(charset: str) -> None:
    with pytest.raises(InvalidPayloadError, match="is not read; send UTF-8"):
        read(BODY, f"application/json; charset={charset}")


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY)),
        ("X-GZIP", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", raw_deflate(BODY)),
        ("utf-8", BODY),
        ("identity", BODY),
        ("", BODY),
    ],
)
def test_packed_bodies_are_unpacked(encoding: str, body: bytes) -> None:
    assert read(body, encoding=encoding) == "订单延迟"


@pytest.mark.parametrize(
    ("encoding", "body", "sentence"),
    [
        ("br", BODY, "content_encoding 'br' is not read; send none, gzip or deflate"),
        ("gzip, gzip", BODY, "is not read"),
        ("gzip", BODY, "not compressed as content_encoding says"),
        ("deflate", b"", "cut off"),
        ("gzip", gzip.compress(BODY)[:-9], "cut off"),
        ("gzip", gzip.compress(BODY) * 2, "goes on after its end"),
        ("gzip", gzip.compress(b" " * 50_000_000), "unpacks to more than 1048576 bytes"),
        ("deflate", raw_deflate(b"[" * 50_000_000), "unpacks to more than 1048576 bytes"),
    ],
)
def test_a_badly_packed_body_is_refused_in_one_sentence(
    encoding: str, body: bytes, sentence: str
) -> None:
    with pytest.raises(InvalidPayloadError, match=sentence):
        read(body, encoding=encoding)


def test_a_body_may_unpack_to_exactly_the_limit() -> None:
    properties = Properties(content_encoding="gzip")
    body = gzip.compress(BODY)
    assert decode(body, properties, limits=WireLimits(max_body_bytes=len(BODY))).payload
    with pytest.raises(InvalidPayloadError, match="unpacks to more"):
        decode(body, properties, limits=WireLimits(max_body_bytes=len(BODY) - 1))


BROKEN = {
    "null": (b"null", "the body is null; expected an object"),
    "list": (b"[]", "the body is a list; expected an object"),
    "text": (b'"text"', "the body is a text; expected an object"),
    "number": (b"123", "the body is a single value; expected an object"),
    "nothing in it": (b"{}", "message_id, sender, message_type or type missing"),
    "empty": (b"", "the body is empty"),
    "spaces": (b" " * 1_000_000, "the body is empty"),
    "byte order mark": (b"\xef\xbb\xbf", "the body is not JSON"),
    "cut off": (BODY[:-20], "the body is not"),
    "binary": (bytes(range(128, 256)), "the body is not text in utf-8"),
    "zeros": (bytes(16), "the body is not"),
    "pickle": (b"\x80\x04\x95\x10\x00", "the body is not"),
    "trailing": (BODY + b"x", "the body is not JSON: Extra data"),
    "single quotes": (b"{'a': 1}", "the body is not JSON"),
    "NaN": (BODY[:-1] + b', "metadata": {"a": NaN}}', "metadata.a is nan"),
    "infinite": (BODY[:-1] + b', "metadata": {"a": [-1e999]}}', r"metadata\.a\[0\] is -inf"),
    "duplicate key": (BODY[:-1] + b', "sender": "mallory"}', "names one key twice"),
    "lone surrogate": (BODY[:-1] + b', "intent": "\\ud800"}', "intent holds half a surrogate"),
    "surrogate bytes": (BODY[:-1] + b', "intent": "\xed\xa0\x80"}', "not text in utf-8"),
    "huge integer": (BODY[:-1] + b', "n": ' + b"9" * 5000 + b"}", "integer of too many digits"),
    "big integer": (BODY[:-1] + b', "n": ' + b"9" * 2000 + b"}", "n is an integer of more"),
    "deep": (BODY[:-1] + b', "n": ' + b"[" * 500 + b"]" * 500 + b"}", "nests deeper than 128"),
    "very deep": (b"[" * 500_000, "the body nests too deep"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "the body nests too deep"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_body_is_refused_in_one_short_sentence(name: str) -> None:
    body, sentence = BROKEN[name]
    with pytest.raises(InvalidPayloadError, match=sentence) as caught:
        decode(body, Properties())
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_an_error_does_not_carry_the_body_with_it() -> None:
    with pytest.raises(InvalidPayloadError) as caught:
        decode(b'{"secret-content": ', Properties())
    assert "secret-content" not in str(caught.value)
    assert caught.value.__suppress_context__


@given(
    st.binary(max_size=200) | st.text(max_size=100).map(str.encode),
    st.none() | st.sampled_from(["gzip", "deflate", "utf-8"]) | st.text(max_size=20),
    st.none() | st.text(max_size=40) | st.just("application/json; charset=utf-16"),
)
def test_no_bytes_raise_anything_but_a_protocol_error(
    body: bytes, encoding: str | None, content_type: str | None
) -> None:
    properties = Properties(content_encoding=encoding, content_type=content_type)
    with pytest.raises(ProtocolError):
        decode(body, properties)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(AgentMessage.model_fields)), junk, max_size=6))
def test_any_envelope_is_read_or_refused(fields: dict[str, Any]) -> None:
    body = json.dumps(WRITTEN | fields).encode("utf-8", "surrogatepass")
    try:
        message = decode(body, Properties())
    except ProtocolError as error:
        str(error).encode()
    else:
        assert AgentMessage.read(message.wire()) == message
