"""Messages to bytes and properties, and back.

The body is the whole envelope. Properties and headers repeat parts of it for routing and
for tools; on receipt the body alone counts.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from amqp_agents.errors import ExpiredMessageError, InvalidPayloadError
from amqp_agents.protocol.digest import DIGEST_SCHEME, digest_of_checked
from amqp_agents.protocol.envelope import AgentMessage
from amqp_agents.protocol.json_values import check_json
from amqp_agents.protocol.lifetime import remaining_ms
from amqp_agents.protocol.limits import (
    MAX_EXPIRATION_MS,
    WireLimits,
    check_body,
    check_properties,
)
from amqp_agents.protocol.properties import Properties
from amqp_agents.protocol.unpacking import read_json

CONTENT_TYPE = "application/vnd.amqp-agents.message+json"

_DEFAULTS = WireLimits()
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


def encode(
    message: AgentMessage,
    *,
    now: float,
    limits: WireLimits = _DEFAULTS,
) -> tuple[bytes, Properties]:
    """Return the body and the properties of `message`, sealed.

    `expiration_ms` is what is left of its life; whether it applies is for the publisher to
    decide. The property `message_id` stays empty: it names one publishing, not the message.

    Units:  `now` seconds since the epoch
    Raises: InvalidPayloadError naming the field and its limit, ExpiredMessageError.
    """
    sealed = message.sealed()
    body = _dump(sealed)
    check_body(body, limits.max_body_bytes)
    properties = _properties(sealed, now=now)
    check_properties(properties)
    return body, properties


def decode(
    body: bytes,
    properties: Properties,
    *,
    limits: WireLimits = _DEFAULTS,
) -> AgentMessage:
    """Read a body of ours, or of anyone who writes the same envelope.

    Raises: InvalidPayloadError, SchemaMismatchError; each in one sentence that says what was
        expected.
    """
    data = read_json(body, properties, max_bytes=limits.max_body_bytes)
    plain = check_json(data, at="")
    if not isinstance(data, dict):
        raise InvalidPayloadError(f"the body is {_kind(data)}; expected an object, the envelope")
    undated = data.get("timestamp") is None and data.get("created_at") is None
    if undated and properties.timestamp is not None:
        data["timestamp"] = properties.timestamp
    message = AgentMessage.read(data)
    _verify(message, plain=plain)
    return message


def _dump(message: AgentMessage) -> bytes:
    wire = message.wire()
    check_json(wire.get("metadata"), at="metadata")  # sealing has looked at the payload
    try:
        text = json.dumps(wire, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (ValueError, TypeError, RecursionError):
        for name, value in wire.items():
            check_json(value, at=name)  # names the place
        raise


def _verify(message: AgentMessage, *, plain: bool) -> None:
    claimed = message.payload_digest
    if claimed is None or message.digest_scheme not in (None, DIGEST_SCHEME):
        return  # digests of another scheme cannot be compared, which is no conflict
    if claimed != digest_of_checked(message.payload, plain=plain):
        raise InvalidPayloadError(
            f"payload_digest {claimed[:80]!r} is not the payload's {DIGEST_SCHEME}: "
            "the payload was changed on its way, or the digest made in another way"
        )


def _properties(message: AgentMessage, *, now: float) -> Properties:
    left = remaining_ms(message, clock_ms=None, now=now)
    if left == 0:
        raise ExpiredMessageError(
            f"message {message.message_id} has expired before it was sent: "
            f"ttl {message.ttl} s, deadline_ms {message.deadline_ms}"
        )
    return Properties(
        content_type=CONTENT_TYPE,
        headers=_headers(message),
        priority=max(0, 9 - message.priority),
        correlation_id=message.correlation_id,
        reply_to=message.reply_to if message.callback_type == "queue" else None,
        expiration_ms=None if left is None else min(left, MAX_EXPIRATION_MS),
        timestamp=message.timestamp.astimezone(UTC),
        type=message.type,
        app_id=str(message.sender),
    )


def _headers(message: AgentMessage) -> Mapping[str, Any]:
    headers = {
        "traceparent": traceparent(message.trace_id, message.message_id),
        "aa-message-id": message.message_id,
        "aa-trace-id": message.trace_id,
        "aa-task-id": message.task_id,
        "aa-context-id": message.context_id,
        "aa-sender": str(message.sender),
        "aa-recipient": None if message.recipient is None else str(message.recipient),
        "aa-recipient-mode": message.recipient_mode.value,
        "aa-message-type": message.message_type.value,
        "aa-intent": message.intent,
        "aa-deadline-ms": message.deadline_ms,
        "aa-parent": message.causality.parent_message_id,
        "aa-sensitivity": message.policy.sensitivity,
        "aa-protocol": message.protocol_version,
        "aa-schema-version": message.schema_version,
        "aa-schema": message.payload_schema,
        "aa-idempotency-key": message.idempotency_key,
        "aa-digest": message.payload_digest,
        "aa-callback": None if message.callback_type == "queue" else message.callback_type,
    }
    return {name: value for name, value in headers.items() if value is not None}


def traceparent(trace_id: str, message_id: str) -> str:
    """Return the W3C trace context; a trace id of another shape is hashed into one.

    Source: W3C Trace Context, traceparent.

    >>> traceparent("4bf92f3577b34da6a3ce929d0e0e4736", "M-104")
    '00-4bf92f3577b34da6a3ce929d0e0e4736-525fb36ba3e88b67-01'
    """
    trace = trace_id if _TRACE_ID.fullmatch(trace_id) else _hex(trace_id)[:32]
    return f"00-{trace}-{_hex(message_id)[:16]}-01"


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _kind(data: object) -> str:
    if data is None:
        return "null"
    if isinstance(data, str):
        return "a text"
    return "a list" if isinstance(data, list) else "a single value"
