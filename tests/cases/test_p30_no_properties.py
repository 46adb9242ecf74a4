"""What a person publishes by hand: no properties, and bodies that are no message."""

import asyncio
import json
from typing import Any

import pytest

from amqp_agents.pipeline import Delivery
from tests.cases.checks import bounded, canary, not_told, odd, settled, told
from tests.cases.stage import JSON, Stage, body_of, message
from tests.nodes.rawpub import properties, short

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

NONE = b"\x00\x00"
REQUIRED = ("message_id", "sender", "message_type")
NO_MESSAGES = {
    "nothing": b"",
    "blank": b"  \n",
    "null": b"null",
    "true": b"true",
    "list": b"[]",
    "list of objects": b"[{}]",
    "text": b'"text"',
    "number": b"123",
    "float": b"1.5",
    "not a number": b"NaN",
    "cut off": b'{"message_id":',
    "object": b"{}",
    "not UTF-8": b"\xff\xfe\x00",
    "words": b"hello",
    "xml": b"<message/>",
    "pickle": b"\x80\x04N.",
    "zeros": b"\x00" * 64,
    "after the end": b"{} {}",
    "twice the same key": b'{"message_id": "a", "message_id": "b", "sender": "s", "type": "event"}',
    "deep": b"[" * 10_000 + b"]" * 10_000,
    "long number": b"9" * 10_000,
    "a megabyte of spaces": b" " * 1_048_576,
}


def changed(**fields: Any) -> bytes:
    """A normal message with some fields replaced; `...` takes one out."""
    written = json.loads(body_of("work")[0]) | fields
    return json.dumps({k: v for k, v in written.items() if v is not ...}).encode()


WRONG_FIELDS = {
    **{f"no {name}": changed(**{name: ...}) for name in REQUIRED[:2]},
    "no message_type and no type": changed(message_type=..., type=...),
    **{f"{name} null": changed(**{name: None}) for name in REQUIRED[:2]},
    **{f"{name} empty": changed(**{name: ""}) for name in REQUIRED[:2]},
    **{f"{name} a number": changed(**{name: 7}) for name in (*REQUIRED, "recipient", "type")},
    **{f"{name} a list": changed(**{name: []}) for name in (*REQUIRED, "recipient", "ttl")},
    "payload a list": changed(payload=[]),
    "payload a text": changed(payload="{}"),
    "payload of another type": changed(payload={"n": "many"}),
    "ttl a text": changed(ttl="soon"),
    "ttl negative": changed(ttl=-1),
    "priority 0": changed(priority=0),
    "priority 11": changed(priority=11),
    "message_id too long": changed(message_id="m" * 256),
    "digest of another payload": changed(payload={"n": 1}),
    "metadata a text": changed(metadata="x"),
    "evidence_refs of numbers": changed(evidence_refs=[1]),
    "requires_response a text": changed(requires_response="yes"),
}


async def gone_wrong(stage: Stage, body: bytes, props: bytes) -> Delivery:
    """Send a body that no agent reads; it must rest, unchanged, in the dead-letter queue."""
    case = odd(stage, "work", body)
    await stage.put("work", body, props)
    await canary(stage, "work")
    resting = await settled(case, "dead")
    bounded(case)
    told(case, "INVALID_PAYLOAD")
    assert resting is not None
    assert resting.properties.headers["aa-fault-code"] == "INVALID_PAYLOAD"
    assert resting.properties.headers["aa-fault-message"]
    assert resting.properties.headers["aa-attempt"] == 1
    return resting


async def test_a_message_without_properties_is_handled(stage: Stage) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body, NONE)
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    not_told(case, "reply_undelivered", "property_unreadable", "delivery_dead")


async def test_a_request_without_properties_is_handled_and_not_answered(stage: Stage) -> None:
    body, message_id = body_of("work", message_type="request")
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body, NONE)
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    not_told(case, "reply_undelivered", "delivery_dead")


@pytest.mark.parametrize("what", NO_MESSAGES)
async def test_a_body_that_is_no_message_is_given_up_at_once(stage: Stage, what: str) -> None:
    await gone_wrong(stage, NO_MESSAGES[what], NONE)


@pytest.mark.parametrize("what", WRONG_FIELDS)
async def test_a_message_with_a_wrong_field_is_given_up_at_once(stage: Stage, what: str) -> None:
    body = WRONG_FIELDS[what]
    written = json.loads(body)
    given = written.get("message_id")
    known = given if isinstance(given, str) and given else None
    case = odd(stage, "work", body, known)
    await stage.put("work", body, NONE)
    await canary(stage, "work")
    resting = await settled(case, "dead")
    bounded(case)
    told(case, "INVALID_PAYLOAD")
    assert resting is not None
    assert resting.properties.headers["aa-fault-code"] == "INVALID_PAYLOAD"


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        (b"text/plain", None),
        (b"application/octet-stream", None),
        (b"application/x-python-serialize", None),
        (b"application/json; charset=klingon", None),
        (b"application/json", b"gzip"),
        (b"application/json", b"br"),
        (b"application/json", b"deflate"),
    ],
)
async def test_a_body_that_is_not_what_its_properties_say_is_given_up(
    stage: Stage, content_type: bytes, encoding: bytes | None
) -> None:
    given = {"content_type": short(content_type)}
    if encoding is not None:
        given["content_encoding"] = short(encoding)
    resting = await gone_wrong(stage, body_of("work")[0], properties(**given))
    assert resting.properties.content_type == content_type.decode()


async def test_a_waiting_caller_of_an_unreadable_message_cannot_be_told(stage: Stage) -> None:
    """A reply address without a message to answer: nothing is sent, nothing fails."""
    props = properties(content_type=JSON, reply_to=short(b"agent.reply.nobody"))
    await gone_wrong(stage, b'{"half":', props)


async def test_a_normal_message_is_nothing_to_tell(stage: Stage) -> None:
    normal = message("work")
    case = odd(stage, "work", b"", normal.message_id)
    await stage.caller.publish(normal)
    await canary(stage, "work")
    assert stage.journal.count("handled", normal.message_id) == 1
    not_told(case, "delivery_dead", "delivery_retried", "property_unreadable")


async def test_many_at_once_are_all_given_up(stage: Stage) -> None:
    bodies = [b'{"number": %d' % n for n in range(50)]
    await asyncio.gather(*(stage.put("work", body, NONE) for body in bodies))
    await canary(stage, "work")
    resting = {each.body for each in await stage.dead_letters("work")}
    assert resting >= set(bodies)
