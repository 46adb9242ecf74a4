import json
import math
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_agents.errors import ExpiredMessageError, InvalidPayloadError, SchemaMismatchError
from amqp_agents.protocol import (
    CONTENT_TYPE,
    AgentMessage,
    AgentRef,
    MessageType,
    WireLimits,
    decode,
    encode,
)
from amqp_agents.protocol.codec import traceparent
from amqp_agents.protocol.properties import Properties
from tests.unit.protocol.strategies import payloads, text

SENT = 1_783_915_200
MOMENT = datetime(2026, 7, 13, 4, tzinfo=UTC)


def request(**fields: Any) -> AgentMessage:
    given = {"sender": "planner_agent", "recipient": "coder_agent", "type": "task.request"}
    return AgentMessage(**(given | {"timestamp": MOMENT} | fields))


def properties_of(message: AgentMessage, *, now: float = SENT) -> Properties:
    return encode(message, now=now)[1]


def test_the_properties_are_a_projection_of_the_envelope() -> None:
    message = request(
        message_id="M-1",
        correlation_id="C-1",
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        task_id="T-20",
        context_id="T4821",
        sender=AgentRef("planner_agent", role="planner"),
        intent="review_reply_risk",
        payload={"goal": "collect evidence"},
        ttl=900,
        deadline_ms=30_000,
        priority=1,
        causality={"parent_message_id": "M-0"},
        policy={"sensitivity": "high"},
        payload_schema="task.v2",
        reply_to="agent.reply.7",
    )
    body, properties = encode(message, now=SENT)
    digest = "sha256:3b3d2b022089bba54cd5817f45a78850b9c1b89438655da751d1565121836478"
    assert properties == Properties(
        content_type=CONTENT_TYPE,
        headers={
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-fc12a89cb9563375-01",
            "aa-message-id": "M-1",
            "aa-trace-id": "4bf92f3577b34da6a3ce929d0e0e4736",
            "aa-task-id": "T-20",
            "aa-context-id": "T4821",
            "aa-sender": "planner_agent",
            "aa-recipient": "coder_agent",
            "aa-recipient-mode": "direct",
            "aa-message-type": "request",
            "aa-intent": "review_reply_risk",
            "aa-deadline-ms": 30_000,
            "aa-parent": "M-0",
            "aa-sensitivity": "high",
            "aa-protocol": "1.0",
            "aa-schema-version": "1.0",
            "aa-schema": "task.v2",
            "aa-idempotency-key": "M-1",
            "aa-digest": digest,
        },
        priority=8,
        correlation_id="C-1",
        reply_to="agent.reply.7",
        expiration_ms=30_000,
        message_id=None,
        timestamp=MOMENT,
        type="task.request",
        app_id="planner_agent",
    )
    assert json.loads(body) == message.sealed().wire()


def test_no_header_begins_with_x() -> None:
    # A headers exchange with x-match=all ignores such keys, so a filter on one lets all pass.
    assert not [name for name in properties_of(request()).headers if name.startswith("x-")]


@pytest.mark.parametrize(("priority", "property_"), [(1, 8), (5, 4), (8, 1), (9, 0), (10, 0)])
def test_the_most_urgent_message_has_the_highest_priority_property(
    priority: int, property_: int
) -> None:
    assert properties_of(request(priority=priority)).priority == property_


@pytest.mark.parametrize("callback", ["webhook", "polling"])
def test_only_a_queue_is_a_reply_to(callback: str) -> None:
    message = request(reply_to="https://example.org/hook?token=1", callback_type=callback)
    body, properties = encode(message, now=SENT)
    assert properties.reply_to is None
    assert properties.headers["aa-callback"] == callback
    assert "token" not in str(properties)
    assert decode(body, properties).reply_to == message.reply_to


@pytest.mark.parametrize(
    ("fields", "now", "expected"),
    [
        ({"ttl": 300}, SENT, 300_000),
        ({"ttl": 300}, SENT + 10.25, 289_750),
        ({"ttl": 300, "deadline_ms": 1500}, SENT + 1, 500),
        ({"ttl": 1, "deadline_ms": 1500}, SENT, 1000),
        ({"ttl": None}, SENT + 10**6, None),
        ({"ttl": None, "deadline_ms": 1500}, SENT, 1500),
        ({"ttl": 300}, SENT - 60, 300_000),
        ({"ttl": 2**40}, SENT, 2**32 - 1),
    ],
)
def test_the_expiration_is_what_is_left_of_ttl_and_deadline(
    fields: dict[str, Any], now: float, expected: int | None
) -> None:
    assert properties_of(request(**fields), now=now).expiration_ms == expected


@pytest.mark.parametrize(("fields", "now"), [({}, SENT + 300), ({"ttl": 0}, SENT)])
def test_a_message_with_nothing_left_is_not_sent(fields: dict[str, Any], now: float) -> None:
    with pytest.raises(ExpiredMessageError, match="expired before it was sent: ttl"):
        encode(request(**fields), now=now)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"payload": {"s": [0, math.nan]}}, r"^payload\.s\[1\] is nan"),
        ({"payload": {"s": {1: 2}}}, r"^payload\.s has the key 1 of type int"),
        ({"metadata": {"a": b""}}, r"^metadata\.a is a bytes"),
        ({"intent": "\udc00"}, r"^intent holds half a surrogate pair"),
        ({"evidence_refs": ["a", "\udc00"]}, r"^evidence_refs\[1\] holds half"),
        ({"reply_to": "r" * 256}, r"^reply_to has 256 bytes, the limit is 255"),
        ({"intent": "i" * 70_000}, r"^the headers have \d+ bytes together, the limit is 65536"),
        ({"timestamp": "1969-12-31T00:00:00Z", "ttl": None}, r"^timestamp must be .* 1970"),
    ],
)
def test_nothing_leaves_that_amqp_or_json_cannot_carry(
    fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidPayloadError, match=sentence):
        encode(request(**fields), now=SENT)


def test_a_body_over_the_limit_is_refused_with_a_way_out() -> None:
    message = request(payload={"text": "é" * 2000})
    with pytest.raises(InvalidPayloadError, match="send a reference in evidence_refs"):
        encode(message, now=SENT, limits=WireLimits(max_body_bytes=4096))
    encode(message, now=SENT)


@pytest.mark.parametrize("trace_id", ["R-7", "trace_ticket_T4821", "0" * 32, "A" * 32, "订"])
def test_any_trace_id_becomes_a_valid_trace_context(trace_id: str) -> None:
    header = traceparent(trace_id, "M-1")
    assert re.fullmatch(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-01", header)
    assert header == traceparent(trace_id, "M-1")


messages = st.builds(
    lambda payload, metadata, intent, refs, ttl, deadline, priority, kind: request(
        payload=payload,
        metadata=metadata,
        intent=intent,
        evidence_refs=refs,
        ttl=ttl,
        deadline_ms=deadline,
        priority=priority,
        message_type=kind,
    ),
    payloads,
    payloads,
    st.none() | text,
    st.lists(text, max_size=3),
    st.none() | st.integers(1, 2**53 - 1),
    st.none() | st.integers(1, 2**53 - 1),
    st.integers(1, 10),
    st.sampled_from(MessageType),
)


@given(messages)
def test_what_was_sent_is_what_is_read(message: AgentMessage) -> None:
    body, properties = encode(message, now=SENT)
    assert decode(body, properties) == message.sealed()


@given(messages)
def test_sending_again_what_was_read_changes_nothing(message: AgentMessage) -> None:
    first = encode(message, now=SENT)
    assert encode(decode(*first), now=SENT) == first


def test_fields_of_a_later_version_survive_being_sent_on() -> None:
    later = request().sealed().wire() | {"protocol_version": "1.9", "shard": {"of": 3}}
    message = decode(json.dumps(later).encode(), Properties())
    body, _ = encode(message, now=SENT)
    assert json.loads(body)["shard"] == {"of": 3}


def test_a_payload_changed_on_its_way_is_noticed() -> None:
    body, properties = encode(request(payload={"amount": 10}), now=SENT)
    with pytest.raises(InvalidPayloadError, match="payload was changed on its way"):
        decode(body.replace(b'"amount":10', b'"amount":1000'), properties)


def test_a_digest_of_another_scheme_is_not_judged() -> None:
    written = request().wire() | {"payload_digest": "md5:1", "digest_scheme": "python-sorted/1"}
    assert decode(json.dumps(written).encode(), Properties()).payload_digest == "md5:1"


def test_a_digest_without_a_scheme_is_taken_for_ours() -> None:
    sealed = request(payload={"score": 1.0}).sealed().wire()
    del sealed["digest_scheme"]
    decode(json.dumps(sealed).encode(), Properties())
    with pytest.raises(InvalidPayloadError, match="payload_digest"):
        decode(json.dumps(sealed | {"payload": {}}).encode(), Properties())


def test_the_body_alone_counts_and_properties_only_date_an_undated_one() -> None:
    written = {"message_id": "M-1", "sender": "manager", "type": "event"}
    properties = Properties(
        timestamp=MOMENT, type="task.request", app_id="mallory", headers={"aa-sender": "mallory"}
    )
    message = decode(json.dumps(written).encode(), properties)
    assert (message.sender, message.type, message.timestamp) == ("manager", "event", MOMENT)
    dated = written | {"created_at": "2020-01-01T00:00:00Z"}
    assert decode(json.dumps(dated).encode(), properties).timestamp.year == 2020


def test_another_major_is_refused() -> None:
    written = request().wire() | {"protocol_version": "2.0"}
    with pytest.raises(SchemaMismatchError, match=r"protocol_version '2\.0' is not accepted"):
        decode(json.dumps(written).encode(), Properties())
