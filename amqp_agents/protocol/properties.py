"""AMQP basic properties as a value of ours, so that no room but one knows a client library."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of one AMQP message; absent ones are None.

    Read off the wire, `headers` may hold whatever a foreign sender put there; written by
    us, values are str, bool, int within 64 bit, or aware datetimes.

    Units:  expiration_ms milliseconds; priority as on the wire (larger is more urgent).
    Source: AMQP 0-9-1, basic class properties.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    persistent: bool = True
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration_ms: int | None = None
    message_id: str | None = None
    timestamp: datetime | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None


_ONE_HOP = frozenset({"x-delivery-count", "x-acquired-count", "CC", "BCC"})
_ONE_HOP_PREFIXES = ("x-death", "x-first-death-", "x-last-death-")


def belongs_to_one_hop(header: str) -> bool:
    """Return whether a header tells of one message's way, and is copied onto no other.

    RabbitMQ 3.10 takes a copied `x-death` for the new message's own past and drops that
    message as a cycle, silently; CC and BCC would reroute it.

    >>> belongs_to_one_hop("x-death"), belongs_to_one_hop("x-tenant")
    (True, False)
    """
    return header in _ONE_HOP or header.startswith(_ONE_HOP_PREFIXES)
