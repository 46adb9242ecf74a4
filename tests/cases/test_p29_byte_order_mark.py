"""A byte order mark, and every other way to write the same JSON."""

import codecs
import gzip
import json
import zlib

import pytest

from tests.cases.checks import bounded, canary, not_told, odd, settled
from tests.cases.stage import Stage, body_of
from tests.nodes.rawpub import properties, short

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

TYPES = [
    b"application/json",
    b"application/json; charset=utf-8",
    b"application/json; charset=UTF-8",
    b'application/json; charset="utf-8"',
    b"application/json;charset=utf8",
    b"application/json; profile=x; charset=utf-8",
    b"Application/JSON",
    b"application/vnd.amqp-agents.message+json",
    b"application/vnd.amqp-agents.message+json; charset=utf-8",
    b"application/cloudevents+json",
    b"",
    None,
]
PACKED = {
    "gzip": (gzip.compress, b"gzip"),
    "x-gzip": (gzip.compress, b"x-gzip"),
    "zlib": (zlib.compress, b"deflate"),
    "deflate": (lambda body: zlib.compress(body)[2:-4], b"deflate"),
    "identity": (bytes, b"identity"),
    "utf-8": (bytes, b"utf-8"),
}


async def arrives(stage: Stage, body: bytes, message_id: str, props: bytes) -> None:
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body, props)
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    not_told(case, "delivery_dead", "property_unreadable")


def typed(content_type: bytes | None, **more: bytes) -> bytes:
    given = {} if content_type is None else {"content_type": short(content_type)}
    return properties(**given, **more)


def digest_handled(stage: Stage, message_id: str) -> str | None:
    handled = [e.message for e in stage.journal.entries if e.message.message_id == message_id]
    return handled[0].payload_digest


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, b""], ids=["marked", "plain"])
@pytest.mark.parametrize("content_type", TYPES)
async def test_a_byte_order_mark_changes_nothing(
    stage: Stage, content_type: bytes | None, mark: bytes
) -> None:
    body, message_id = body_of("work")
    await arrives(stage, mark + body, message_id, typed(content_type))
    assert digest_handled(stage, message_id) == json.loads(body)["payload_digest"]


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
@pytest.mark.parametrize("named", [True, False])
async def test_other_unicode_encodings_are_read(stage: Stage, charset: str, named: bool) -> None:
    body, message_id = body_of("work", metadata={"word": "naïve 字"})
    written = body.decode().encode(charset)
    content_type = f"application/json; charset={charset}" if named else "application/json"
    await arrives(stage, written, message_id, typed(content_type.encode()))


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, b""], ids=["marked", "plain"])
async def test_a_packed_body_is_unpacked(stage: Stage, packing: str, mark: bytes) -> None:
    pack, name = PACKED[packing]
    body, message_id = body_of("work")
    props = typed(b"application/json", content_encoding=short(name))
    await arrives(stage, pack(mark + body), message_id, props)


@pytest.mark.parametrize("spaced", [{"indent": 2}, {"separators": (" , ", " : ")}])
async def test_other_spacing_and_escapes_have_the_same_digest(
    stage: Stage, spaced: dict[str, object]
) -> None:
    body, message_id = body_of("work", metadata={"word": "naïve 字 \U0001f600"})
    rewritten = json.dumps(json.loads(body), **spaced).encode()  # type: ignore[arg-type]
    await arrives(stage, b"\r\n" + rewritten + b"\n", message_id, typed(b"application/json"))


async def test_a_mark_within_the_body_is_refused_once(stage: Stage) -> None:
    body, _ = body_of("work")
    torn = body[:-1] + codecs.BOM_UTF8 + body[-1:]
    case = odd(stage, "work", torn)
    await stage.put("work", torn, typed(b"application/json"))
    await canary(stage, "work")
    await settled(case, "dead")
    bounded(case)
