"""Messages as people write them down: each parses, and says the same when written again."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol import AgentMessage, MessageType, decode, matches, project
from amqp_agents.protocol.payloads import (
    FactInvalidated,
    MissingFactRequest,
    ReviewResult,
    TaskRequest,
    TaskTimedOut,
)
from amqp_agents.protocol.properties import Properties

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    return data


def test_the_flat_envelope_parses_and_says_the_same_when_written_again() -> None:
    written = golden("task_request_envelope")
    message = AgentMessage.read(written)
    assert message.type == "task.request"
    assert message.message_type is MessageType.REQUEST
    again = message.wire()
    again["created_at"] = again["timestamp"].replace(".000Z", "Z")
    again["type"] = again["type"].replace(".", "_")
    assert {name: again[name] for name in written} == written


def test_the_flat_envelope_is_also_a_constructor_call() -> None:
    written = golden("task_request_envelope")
    assert AgentMessage(**written) == AgentMessage.read(written)


def test_a_placeholder_digest_parses_and_fails_only_the_verification_on_receipt() -> None:
    written = golden("task_request_envelope")
    assert AgentMessage.read(written).payload_digest == "sha256:..."
    with pytest.raises(InvalidPayloadError, match=r"payload_digest 'sha256:\.\.\.' is not"):
        decode(json.dumps(written).encode(), Properties())


def test_the_nested_envelope_parses_and_says_the_same_when_written_again() -> None:
    written = golden("ticket_envelope")
    message = AgentMessage.read(written)
    assert (message.sender, message.sender.role) == ("support_agent", "support")
    again = message.wire()
    nested = {
        "ticket_id": again["context_id"],
        "sender": {"agent_id": again["sender"], "role": again["sender_role"]},
        "recipient": {"mode": again["recipient_mode"], "agent_id": again["recipient"]},
        "policy": {**again["policy"], "ttl_seconds": again["ttl"]},
    }
    assert {name: (again | nested)[name] for name in written} == written


@pytest.mark.parametrize("name", ["task_request_envelope", "ticket_envelope"])
def test_reading_what_was_written_again_gives_the_same_message(name: str) -> None:
    message = AgentMessage.read(golden(name))
    assert AgentMessage.read(json.loads(message.json())) == message


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("review_request", TaskRequest),
        ("review_result", ReviewResult),
        ("review_result_v2", ReviewResult),
        ("collect_missing_fact", MissingFactRequest),
        ("fact_invalidated", FactInvalidated),
        ("task_timed_out", TaskTimedOut),
    ],
)
def test_payloads_parse_and_say_the_same_when_written_again(
    name: str, model: type[BaseModel]
) -> None:
    written = golden(name)["payload"]
    again = model.model_validate(written).model_dump(mode="json", exclude_unset=True)
    for fact in written.get("confirmed_facts", []):
        if "observed_at" in fact:
            assert fact["observed_at"] == "2026-06-24T10:21:00+08:00"
            fact["observed_at"] = "2026-06-24T02:21:00Z"
    assert again == written


@pytest.mark.parametrize(
    ("name", "message_type"),
    [
        ("review_result", MessageType.RESPONSE),
        ("collect_missing_fact", MessageType.REQUEST),
        ("fact_invalidated", MessageType.EVENT),
        ("task_timed_out", MessageType.EVENT),
    ],
)
def test_type_and_intent_alone_say_how_a_message_is_delivered(
    name: str, message_type: MessageType
) -> None:
    written = golden(name)
    message = AgentMessage(sender="quality_agent", **written)
    assert message.message_type is message_type
    assert {field: message.wire()[field] for field in written} == written


def test_schema_is_the_payload_schema() -> None:
    written = golden("review_result_v2")
    message = AgentMessage(sender="quality_agent", type="task.result", **written)
    assert message.payload_schema == "quality_review_result.v2"
    assert message.compatible_with == ["quality_review_result.v1"]


def test_a_subscriber_gets_what_its_filters_let_pass_and_only_the_fields_it_asked_for() -> None:
    subscription = golden("approval_subscription")
    preview = {
        "ticket_id": "T4821",
        "action_type": "refund",
        "amount": 12_000,
        "risk_level": "high",
        "impact_preview": "refunds 120.00",
        "phone": "+86 …",
    }
    assert matches(subscription["filters"], preview)
    assert not matches(subscription["filters"], preview | {"amount": 9_999})
    assert project(preview, subscription["projection"]) == {
        "ticket_id": "T4821",
        "risk_level": "high",
        "impact_preview": "refunds 120.00",
    }
