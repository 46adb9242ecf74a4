from typing import Any

import pytest

from amqp_agents.errors import InvalidPayloadError, SchemaMismatchError
from amqp_agents.protocol import AgentMessage

GOOD: dict[str, Any] = {"message_id": "M-1", "sender": "manager", "type": "event"}


@pytest.mark.parametrize("missing", ["message_id", "sender", "type"])
def test_reading_never_invents_identity(missing: str) -> None:
    without = {name: value for name, value in GOOD.items() if name != missing}
    for data in (without, without | {missing: None}):
        with pytest.raises(InvalidPayloadError, match=f"not an agent message: .*{missing}"):
            AgentMessage.read(data)


def test_reading_the_same_bytes_twice_gives_the_same_ids() -> None:
    first, second = AgentMessage.read(GOOD), AgentMessage.read(GOOD)
    assert first.trace_id == second.trace_id == first.correlation_id == "M-1"


def test_an_unknown_message_type_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(SchemaMismatchError, match="'shout' is not accepted; accepted: direct"):
        AgentMessage.read(GOOD | {"message_type": "shout"})


def test_an_unknown_type_reads_as_an_event() -> None:
    assert AgentMessage.read(GOOD | {"type": "invoice.paid"}).message_type == "event"


@pytest.mark.parametrize("name", ["protocol_version", "schema_version"])
@pytest.mark.parametrize("version", ["2.0", "0.9", "abc", ""])
def test_another_major_is_refused_and_the_accepted_ones_are_listed(name: str, version: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"accepted: 1\.0") as caught:
        AgentMessage.read(GOOD | {name: version})
    assert (caught.value.what, caught.value.received) == (name, version)


@pytest.mark.parametrize("version", ["1", "1.0", "1.7", "1.0.3"])
def test_every_minor_of_the_major_is_read_and_its_spelling_kept(version: str) -> None:
    assert AgentMessage.read(GOOD | {"schema_version": version}).schema_version == version


def test_fields_of_a_later_version_are_ignored_and_kept() -> None:
    later = {
        "protocol_version": "1.4",
        "shard": {"of": 3},
        "policy": {"sensitivity": "high", "ttl_seconds": 60, "retention": "P1D"},
        "causality": {"parent_message_id": "M-0", "branch": 2},
    }
    message = AgentMessage.read(GOOD | later)
    assert message.policy.sensitivity == "high"
    for written in (message.wire(), message.sealed().wire()):
        assert written["shard"] == {"of": 3}
        assert written["policy"]["retention"] == "P1D"
        assert written["causality"] == {"parent_message_id": "M-0", "branch": 2}
    assert AgentMessage.read(message.wire()) == message


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"priority": 99}, "priority"),
        ({"priority": "urgent"}, "priority"),
        ({"ttl": 1.5}, "ttl"),
        ({"ttl": True}, "ttl"),
        ({"message_id": 17}, "message_id"),
        ({"message_id": ""}, "message_id"),
        ({"sender": ["a"]}, "sender"),
        ({"sender": {"agent_id": "a.b"}}, "sender"),
        ({"sender": {"agent_id": "a", "role": 1}}, "sender"),
        ({"recipient": {"mode": 1}}, "recipient_mode"),
        ({"schema_version": 1}, "schema_version"),
        ({"payload": "x"}, "payload"),
        ({"evidence_refs": [1]}, "evidence_refs.0"),
        ({"metadata": []}, "metadata"),
        ({"policy": "open"}, "policy"),
        ({"policy": {"ttl_seconds": "x"}}, "ttl"),
        ({"causality": 1}, "causality"),
        ({"type": 1}, "type"),
        ({"message_type": 1}, "message_type"),
        ({"timestamp": {}}, "timestamp"),
        ({"timestamp": 1e300}, "timestamp"),
        ({"timestamp": 10**400}, "timestamp"),
        ({"deadline_ms": 2**63}, "deadline_ms"),
    ],
)
def test_a_wrong_type_names_its_field_in_one_sentence(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidPayloadError) as caught:
        AgentMessage.read(GOOD | fields)
    assert str(caught.value).startswith(named)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_many_wrong_fields_are_named_and_the_rest_counted() -> None:
    wrong = dict.fromkeys(
        ("task_id", "context_id", "intent", "reply_to", "payload_schema", "trace_id"), 1
    )
    with pytest.raises(InvalidPayloadError, match=r"task_id: .*; and 1 more$"):
        AgentMessage.read(GOOD | wrong)


def test_what_came_is_not_repeated() -> None:
    with pytest.raises(InvalidPayloadError) as caught:
        AgentMessage.read(GOOD | {"payload": "secret-content", "priority": "secret-content"})
    assert "secret-content" not in str(caught.value)


def test_nulls_are_as_good_as_absent() -> None:
    nulls: dict[str, Any] = dict.fromkeys(
        ("payload", "metadata", "policy", "causality", "priority", "recipient", "callback_type")
    )
    message = AgentMessage.read(GOOD | nulls)
    assert (message.payload, message.priority, message.policy.sensitivity) == ({}, 5, "normal")


@pytest.mark.parametrize("data", [None, [], "text", 1])
def test_only_an_object_is_a_message(data: Any) -> None:
    with pytest.raises(InvalidPayloadError, match="expected a JSON object"):
        AgentMessage.read(data)
