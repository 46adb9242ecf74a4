"""What AMQP can carry, checked for each message before a byte is sent.

A value the client library cannot encode, or a header frame over the negotiated size, would
take down the channel or the connection that others use too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.properties import Properties

MAX_SHORT_BYTES = 255
MAX_HEADER_KEY_BYTES = 128
MAX_HEADERS_BYTES = 65_536
MAX_EXPIRATION_MS = 2**32 - 1
BROKER_BODY_BYTES = 16_777_216
"""What RabbitMQ 4.x takes unless told otherwise; a larger body would close a channel.

Copies of foreign messages may be larger than what this process sends itself.
Source: RabbitMQ documentation, "Configuration", max_message_size.
"""

_SHORT_FIELDS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "user_id",
    "app_id",
)
_WIDEST_SCALAR = 8


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Limits a deployment chooses; those of AMQP itself are constants."""

    max_body_bytes: int = 1_048_576


def check_body(body: bytes, max_bytes: int) -> None:
    """Refuse a body that is larger than the deployment allows.

    Raises: InvalidPayloadError that says how to send more.

    >>> check_body(b"{}", 1024)
    """
    if len(body) > max_bytes:
        raise InvalidPayloadError(
            f"the body has {len(body)} bytes, the limit is {max_bytes} (max_body_bytes); "
            "store the content elsewhere and send a reference in evidence_refs"
        )


def check_properties(properties: Properties) -> None:
    """Refuse properties and headers that AMQP or the client library cannot carry.

    Raises: InvalidPayloadError naming the field and the limit.

    >>> check_properties(Properties(type="task.request", headers={"aa-attempt": 1}))
    """
    for name in _SHORT_FIELDS:
        value = getattr(properties, name)
        if value is not None:
            check_short(name, value)
    _check_whole("priority", properties.priority, most=255)
    _check_whole("expiration_ms", properties.expiration_ms, most=MAX_EXPIRATION_MS)
    if properties.timestamp is not None:
        _check_moment("timestamp", properties.timestamp)
    _check_headers(properties.headers)


def check_short(name: str, value: object) -> None:
    """Refuse what is not text of at most 255 bytes: routing keys, names and most properties.

    Raises: InvalidPayloadError naming the field and the limit.

    >>> check_short("routing key", "event.ticket.closed")
    """
    if not isinstance(value, str) or not _encodable(value):
        came = "half a surrogate pair" if isinstance(value, str) else type(value).__name__
        raise InvalidPayloadError(f"{name} must be text that UTF-8 can carry, not {came}")
    size = len(value.encode())
    if size > MAX_SHORT_BYTES:
        raise InvalidPayloadError(f"{name} has {size} bytes, the limit is {MAX_SHORT_BYTES}")


def carriable(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers we can send again; a foreign sender may have used other types.

    >>> carriable({"aa-attempt": 2, "ratio": 0.5, "nested": {"a": 1}})
    {'aa-attempt': 2}
    """
    return {key: value for key, value in headers.items() if _fault(key, value) is None}


def _check_headers(headers: Mapping[str, Any]) -> None:
    size = 4
    for key, value in headers.items():
        fault = _fault(key, value)
        if fault is not None:
            raise InvalidPayloadError(f"header {str(key)[:64]!r} {fault}")
        width = 4 + len(value.encode()) if isinstance(value, str) else _WIDEST_SCALAR
        size += 2 + len(key.encode()) + width
    if size > MAX_HEADERS_BYTES:
        raise InvalidPayloadError(
            f"the headers have {size} bytes together, the limit is {MAX_HEADERS_BYTES}; "
            "put content into the payload"
        )


def _fault(key: object, value: object) -> str | None:
    """Say what is wrong with one header, or None."""
    if not isinstance(key, str) or not _encodable(key) or not key:
        return "must be named by non-empty text"
    if len(key.encode()) > MAX_HEADER_KEY_BYTES:
        return f"has a name of {len(key.encode())} bytes, the limit is {MAX_HEADER_KEY_BYTES}"
    if isinstance(value, str):
        return None if _encodable(value) else "holds half a surrogate pair"
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "is an integer beyond 64 bits"
    if isinstance(value, datetime):
        return None if _after_epoch(value) else "is a moment without offset, or before 1970"
    return f"is a {type(value).__name__}; headers carry text, bool, integers and aware datetimes"


def _check_whole(name: str, value: object, *, most: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidPayloadError(f"{name} must be a whole number from 0 to {most}")


def _check_moment(name: str, value: object) -> None:
    if not isinstance(value, datetime) or not _after_epoch(value):
        raise InvalidPayloadError(f"{name} must be a datetime with offset, from 1970 on")


def _after_epoch(moment: datetime) -> bool:
    return moment.tzinfo is not None and moment >= datetime(1970, 1, 1, tzinfo=UTC)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
