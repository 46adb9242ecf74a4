import copy
import json
import pickle
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol import AgentMessage, AgentRef, Causality, HybridMessage, MessageType


def request(**fields: object) -> AgentMessage:
    given = {"sender": "planner_agent", "recipient": "coder_agent", "type": "task.request"}
    return AgentMessage(**(given | fields))


def test_a_request_to_an_agent_needs_only_who_asks_whom_and_what() -> None:
    message = AgentMessage(
        sender="planner_agent",
        recipient="coder_agent",  # 明确指定接收者
        message_type=MessageType.REQUEST,
        payload={"task": "实现用户认证模块"},
    )
    assert len(message.message_id) == 32
    assert message.correlation_id == message.trace_id == message.message_id
    assert message.type == "task.request"
    assert message.requires_response
    assert message.recipient_mode == "direct"
    assert (message.ttl, message.priority) == (300, 5)
    assert (message.protocol_version, message.schema_version) == ("1.0", "1.0")
    assert f"agent.{message.recipient}" == "agent.coder_agent"


def test_an_event_without_recipient_goes_to_whoever_subscribes() -> None:
    message = AgentMessage(
        sender="monitor_agent",
        recipient=None,  # 广播
        message_type=MessageType.EVENT,
        payload={"event": "system_load_high", "cpu_percent": 95},
    )
    assert message.recipient is None
    assert message.recipient_mode == "subscribe"
    assert not message.requires_response


def test_an_adapter_may_give_every_id_itself() -> None:
    message = AgentMessage(
        message_id="u-1",
        correlation_id="c-1",
        trace_id="t-1",
        sender="assistant",
        recipient=None,
        message_type=MessageType.DIRECT,
        payload={"content": "hi"},
        metadata={"source_framework": "autogen"},
    )
    assert (message.message_id, message.correlation_id, message.trace_id) == ("u-1", "c-1", "t-1")
    assert message.type == "message"


def test_json_is_the_body_and_warns_of_nothing() -> None:
    message = request(payload={"task": "实现"})
    assert AgentMessage.read(json.loads(message.json())) == message
    assert AgentMessage.model_validate_json(message.json()) == message


def test_json_names_the_place_it_cannot_carry() -> None:
    with pytest.raises(InvalidPayloadError, match=r"metadata\.at\[1\] is a datetime"):
        request(metadata={"at": [1, datetime(2026, 1, 1, tzinfo=UTC)]}).json()


def test_a_hybrid_message_says_where_the_answer_goes() -> None:
    hybrid = HybridMessage(base=request(), reply_to="https://example.org", callback_type="webhook")
    assert HybridMessage(base=request()).callback_type == "queue"
    message = hybrid.to_message()
    assert (message.reply_to, message.callback_type) == ("https://example.org", "webhook")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prioritty": 1}, "prioritty"),
        ({"priority": 0}, "priority"),
        ({"priority": 11}, "priority"),
        ({"priority": True}, "priority"),
        ({"deadline_ms": 0}, "deadline_ms"),
        ({"ttl": -1}, "ttl"),
        ({"sender": "planner.agent"}, "sender"),
        ({"sender": ""}, "sender"),
        ({"sender": 7}, "sender"),
        ({"recipient": "x" * 65}, "recipient"),
        ({"recipient": {"mode": "nowhere", "agent_id": "a"}}, "recipient_mode"),
        ({"message_type": "shout"}, "message_type"),
        ({"message_type": ["request"]}, "message_type"),
        ({"type": ""}, "type"),
        ({"message_id": "é" * 128}, "message_id"),
        ({"correlation_id": ""}, "correlation_id"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"requires_response": "yes"}, "requires_response"),
        ({"policy": {"sensitivity": "secret"}}, "sensitivity"),
        ({"policy": {"retention": 1}}, "retention"),
        ({"causality": {"parent": "x"}}, "parent"),
        ({"callback_type": "pigeon"}, "callback_type"),
        ({"schema_version": "one"}, "schema_version"),
        ({"payload": [1]}, "payload"),
        ({"ttl": 1, "policy": {"ttl_seconds": 2}}, "ttl and policy.ttl_seconds disagree"),
        ({"context_id": "a", "ticket_id": "b"}, "context_id and ticket_id disagree"),
        ({"sender": {"agent_id": "a", "role": "b"}, "sender_role": "c"}, "sender_role"),
    ],
)
def test_writers_are_strict_and_the_error_names_the_field(
    fields: dict[str, object], named: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        request(**fields)
    assert named in str(caught.value)


def test_a_message_says_how_it_is_delivered_or_what_it_is() -> None:
    with pytest.raises(ValidationError, match="message_type or type is missing"):
        AgentMessage(sender="planner_agent")


def test_errors_do_not_show_what_came() -> None:
    with pytest.raises(ValidationError) as caught:
        request(payload="secret-content", ttl="secret-content")
    assert "secret-content" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "recipient", "message_type", "mode"),
    [
        ("task.request", "b", "request", "direct"),
        ("task_request", "b", "request", "direct"),
        ("task.result", "b", "response", "direct"),
        ("task.error", "b", "error", "direct"),
        ("message", "b", "direct", "direct"),
        ("action.preview", "b", "request", "direct"),
        ("action.preview", None, "event", "subscribe"),
        ("action.result", "b", "event", "direct"),
        ("approval.decision", "b", "response", "direct"),
        ("task.cancelled", "b", "direct", "direct"),
        ("task.canceled", None, "broadcast", "broadcast"),
        ("announcement", None, "broadcast", "broadcast"),
        ("agent.heartbeat", None, "heartbeat", "subscribe"),
        ("event", None, "event", "subscribe"),
        ("invoice.paid", None, "event", "subscribe"),
    ],
)
def test_the_type_decides_how_a_message_is_delivered(
    name: str, recipient: str | None, message_type: str, mode: str
) -> None:
    message = AgentMessage(sender="a", recipient=recipient, type=name)
    assert (message.message_type, message.recipient_mode) == (message_type, mode)


def test_a_type_and_a_message_type_given_together_are_both_kept() -> None:
    message = AgentMessage(sender="a", type="invoice.paid", message_type="broadcast")
    assert (message.type, message.message_type) == ("invoice.paid", "broadcast")


def test_null_lives_for_ever_and_stays_so_on_the_wire() -> None:
    message = request(ttl=None)
    assert message.expires_at is None
    assert message.wire()["ttl"] is None
    assert AgentMessage.read(message.wire()).ttl is None
    assert AgentMessage(sender="a", type="event", policy={"ttl_seconds": None}).ttl is None


def test_the_other_names_of_fields_are_read_and_offered() -> None:
    message = request(ticket_id="T-1", created_at="2026-07-13T04:00:00Z", ttl_seconds=60)
    assert message.ticket_id == message.context_id == "T-1"
    assert message.created_at == message.timestamp == datetime(2026, 7, 13, 4, tzinfo=UTC)
    assert message.expires_at == datetime(2026, 7, 13, 4, 1, tzinfo=UTC)


def test_one_moment_in_two_spellings_is_no_disagreement() -> None:
    message = request(timestamp="2026-07-13T04:00:00Z", created_at=1783915200)
    assert message.timestamp == datetime(2026, 7, 13, 4, tzinfo=UTC)


def test_a_life_beyond_the_calendar_ends_with_the_calendar() -> None:
    expires_at = request(ttl=2**50).expires_at
    assert expires_at is not None
    assert expires_at.year == 9999


def test_a_message_is_frozen() -> None:
    with pytest.raises(ValidationError):
        request().ttl = 1  # type: ignore[misc]


def test_an_agent_ref_is_its_id_and_keeps_its_role_through_copies() -> None:
    ref = AgentRef("support_agent", role="support")
    assert ref == "support_agent"
    assert {ref: 1}["support_agent"] == 1
    assert type(ref.agent_id) is str
    for copied in (copy.deepcopy(ref), pickle.loads(pickle.dumps(ref))):
        assert (copied, copied.role) == ("support_agent", "support")


def test_a_role_reaches_the_wire_and_comes_back() -> None:
    sent = request(sender=AgentRef("support_agent", role="support"))
    assert sent.wire()["sender_role"] == "support"
    assert AgentMessage.read(sent.wire()).sender.role == "support"


def test_sealing_adds_the_digest_and_an_idempotency_key() -> None:
    sealed = request(payload={"a": 1}).sealed()
    assert sealed.idempotency_key == sealed.message_id
    assert sealed.digest_scheme == "jcs-bigint-sha256/1"
    assert request(idempotency_key="k").sealed().idempotency_key == "k"
    with pytest.raises(InvalidPayloadError, match=r"payload\.scores\[0\] is inf"):
        request(payload={"scores": [float("inf")]}).sealed()


def test_a_reply_goes_back_in_the_same_trace() -> None:
    asked = request(
        correlation_id="c",
        trace_id="t",
        task_id="T-20",
        ticket_id="T-1",
        intent="review",
        priority=2,
        policy={"sensitivity": "high"},
        causality={"step_id": "quality_review"},
        reply_to="agent.reply.x",
    )
    answer = asked.reply({"risk": "low"}, sender=AgentRef("coder_agent", role="coder"))
    assert answer.message_type is MessageType.RESPONSE
    assert answer.type == "task.result"
    assert (answer.recipient, answer.recipient_mode) == ("planner_agent", "direct")
    assert answer.causality == Causality(
        parent_message_id=asked.message_id, step_id="quality_review"
    )
    for name in (
        "correlation_id",
        "trace_id",
        "task_id",
        "context_id",
        "intent",
        "priority",
        "policy",
    ):
        assert getattr(answer, name) == getattr(asked, name)
    assert answer.message_id != asked.message_id
    assert answer.reply_to is None
    assert not answer.requires_response
    assert answer.sender_role == "coder"


def test_a_reply_may_say_more_and_none_says_nothing() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    asked = request(intent="review")
    answer = asked.reply(
        {},
        sender="coder_agent",
        type="approval.decision",
        intent=None,
        payload_schema="review.v2",
        evidence_refs=("a:1",),
        timestamp=moment,
    )
    assert (answer.type, answer.intent) == ("approval.decision", "review")
    assert (answer.payload_schema, answer.evidence_refs) == ("review.v2", ["a:1"])
    assert answer.timestamp == moment


def test_an_error_reply_is_an_error() -> None:
    answer = request().reply({"code": "UNKNOWN"}, sender="coder_agent", error=True)
    assert (answer.message_type, answer.type) == (MessageType.ERROR, "task.error")


@pytest.mark.parametrize(
    ("deadline_ms", "ttl", "expected"),
    [(None, None, 300), (30_000, None, 300), (900_001, None, 901), (30_000, 5, 30), (None, 5, 5)],
)
def test_a_reply_outlives_the_patience_of_its_requester(
    deadline_ms: int | None, ttl: int | None, expected: int
) -> None:
    asked = request(deadline_ms=deadline_ms)
    assert asked.reply({}, sender="coder_agent", ttl=ttl).ttl == expected
