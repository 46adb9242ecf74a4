"""From what senders write to the fields of an envelope: other names, shapes and defaults."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from amqp_agents.errors import InvalidPayloadError, SchemaMismatchError
from amqp_agents.protocol.agent_ref import AgentRef
from amqp_agents.protocol.taxonomy import (
    MessageType,
    RecipientMode,
    canonical_type,
    message_type_of,
    recipient_mode_of,
    type_of,
)
from amqp_agents.protocol.times import utc_ms
from amqp_agents.protocol.versions import PROTOCOL_VERSIONS, SCHEMA_VERSIONS, accepts

_MESSAGE_TYPES = frozenset(MessageType)

OTHER_NAMES: Mapping[str, str] = {
    "ticket_id": "context_id",
    "created_at": "timestamp",
    "ttl_seconds": "ttl",
    "schema": "payload_schema",
}


def normalised(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` under the envelope's own names, with what follows from it filled in.

    A null is as good as absent, except for `ttl`, where it means: never expires. What is
    missing and follows from nothing stays missing: the fields' own checks report it.

    Raises: ValueError, also for two different values of one field.
    """
    data = {name: value for name, value in given.items() if value is not None or name == "ttl"}
    for other, name in OTHER_NAMES.items():
        if other in given:
            _put(data, name, data.pop(other, None), other)
    _unfold_policy(data, given)
    _unfold_sender(data)
    _unfold_recipient(data)
    _derive_identity(data)
    _derive_type(data)
    return data


def _put(data: dict[str, Any], name: str, value: Any, source: str) -> None:
    if value is None and name != "ttl":
        return
    same: Callable[[Any], Any] = utc_ms if name == "timestamp" else lambda item: item
    if name in data and same(data[name]) != same(value):
        raise ValueError(f"{name} and {source} disagree")
    data.setdefault(name, value)


def _unfold_policy(data: dict[str, Any], given: Mapping[str, Any]) -> None:
    policy = given.get("policy")
    if isinstance(policy, Mapping) and "ttl_seconds" in policy:
        data["policy"] = {key: item for key, item in policy.items() if key != "ttl_seconds"}
        _put(data, "ttl", policy["ttl_seconds"], "policy.ttl_seconds")


def _unfold_sender(data: dict[str, Any]) -> None:
    if "sender" not in data:
        return
    sender = _agent(data["sender"], "sender")
    role = data.get("sender_role")
    if sender.role is not None:
        _put(data, "sender_role", sender.role, "sender.role")
    elif isinstance(role, str):
        sender = AgentRef(sender, role)
    data["sender"] = sender


def _unfold_recipient(data: dict[str, Any]) -> None:
    recipient = data.get("recipient")
    if isinstance(recipient, Mapping):
        if recipient.get("mode") is not None:
            _put(data, "recipient_mode", recipient["mode"], "recipient.mode")
        data["recipient"] = recipient.get("agent_id")
    if data.get("recipient") is not None:
        data["recipient"] = AgentRef(_agent(data["recipient"], "recipient"))


def _agent(value: Any, field: str) -> AgentRef:
    try:
        return AgentRef.parse(value)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _derive_identity(data: dict[str, Any]) -> None:
    identity = data.setdefault("message_id", uuid4().hex)
    data.setdefault("correlation_id", identity)
    data.setdefault("trace_id", identity)


def _derive_type(data: dict[str, Any]) -> None:
    name = data.get("type")
    if isinstance(name, str):
        name = data["type"] = canonical_type(name)
    if name is None and "message_type" not in data:
        raise ValueError("message_type or type is missing")
    mode = data.get("recipient_mode", RecipientMode.DIRECT)
    addressed = data.get("recipient") is not None and mode == RecipientMode.DIRECT
    if "message_type" not in data and isinstance(name, str):
        data["message_type"] = message_type_of(name, addressed=addressed)
    message_type = data.get("message_type")
    if not isinstance(message_type, str) or message_type not in _MESSAGE_TYPES:
        return  # the field's own check says what is wrong with it
    message_type = MessageType(message_type)
    data.setdefault("type", type_of(message_type))
    data.setdefault("recipient_mode", recipient_mode_of(message_type, addressed=addressed))
    data.setdefault("requires_response", message_type is MessageType.REQUEST)


def check_readable(given: Mapping[str, Any]) -> None:
    """Refuse what this version cannot read, before looking any closer.

    Raises: SchemaMismatchError listing what is accepted, InvalidPayloadError.
    """
    _check_version(given, "protocol_version", PROTOCOL_VERSIONS)
    _check_version(given, "schema_version", SCHEMA_VERSIONS)
    missing = [name for name in ("message_id", "sender") if given.get(name) is None]
    if given.get("message_type") is None and given.get("type") is None:
        missing.append("message_type or type")
    if missing:
        raise InvalidPayloadError(f"not an agent message: {', '.join(missing)} missing")
    name = given.get("message_type")
    if isinstance(name, str) and name not in _MESSAGE_TYPES:
        raise SchemaMismatchError("message_type", received=name[:80], accepted=[*MessageType])


def _check_version(given: Mapping[str, Any], name: str, accepted: tuple[str, ...]) -> None:
    version = given.get(name)
    if isinstance(version, str) and not accepts(version, accepted):
        raise SchemaMismatchError(name, received=version[:80], accepted=accepted)


def split_unknown(
    given: Mapping[str, Any], known: Mapping[str, frozenset[str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (known fields, unknown fields); `known` names the fields of nested objects.

    >>> split_unknown({"a": 1, "z": 2, "o": {"b": 3, "y": 4}}, {"a": frozenset(), "o": {"b"}})
    ({'a': 1, 'o': {'b': 3}}, {'z': 2, 'o': {'y': 4}})
    """
    ours: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for name, value in given.items():
        inner = known.get(name)
        if inner is None:
            unknown[name] = value
        elif inner and isinstance(value, Mapping):
            ours[name] = {key: item for key, item in value.items() if key in inner}
            if len(ours[name]) < len(value):
                unknown[name] = {key: item for key, item in value.items() if key not in inner}
        else:
            ours[name] = value
    return ours, unknown


def invalid(error: ValidationError) -> InvalidPayloadError:
    """Name the fields that are wrong and why, without the values that came."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    sentences = []
    for item in found[:5]:
        place = ".".join(str(step)[:40] for step in item["loc"])
        reason = item["msg"].removeprefix("Value error, ")[:200]
        sentences.append(f"{place}: {reason}" if place else reason)
    more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
    return InvalidPayloadError("; ".join(sentences) + more)
