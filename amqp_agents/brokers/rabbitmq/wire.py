"""Between our values and AMQP properties."""

from datetime import datetime
from typing import Any

from aiormq.abc import DeliveredMessage
from pamqp import commands

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.rabbitmq.decoders import readable
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol.properties import Properties, belongs_to_one_hop

_PERSISTENT, _TRANSIENT = 2, 1
_LARGEST_EXPIRATION_MS = 2**32 - 1

_READ = (
    "content_type",
    "content_encoding",
    "headers",
    "correlation_id",
    "reply_to",
    "message_id",
    "timestamp",
    "message_type",
    "user_id",
    "app_id",
)


class OutgoingProperties(commands.Basic.Properties):
    """Properties that remember whether they were encoded: before that, nothing was sent."""

    encoded = False

    def marshal(self) -> bytes:
        self.encoded = True
        return super().marshal()


def outgoing_properties(
    publishing: Publishing, *, wire_id: str, user: str | None
) -> OutgoingProperties:
    """Return what goes on the wire for one attempt.

    `wire_id` becomes the message_id property: the library tells returned messages apart by
    it, so that each attempt needs one of its own.
    """
    properties = publishing.properties
    expiration = properties.expiration_ms
    return OutgoingProperties(
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        headers=outgoing_headers(properties) or None,
        delivery_mode=_PERSISTENT if properties.persistent else _TRANSIENT,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        expiration=None if expiration is None else str(min(expiration, _LARGEST_EXPIRATION_MS)),
        message_id=wire_id,
        timestamp=properties.timestamp,
        message_type=properties.type,
        user_id=user,
        app_id=properties.app_id,
    )


def outgoing_headers(properties: Properties) -> dict[str, Any]:
    """Return the headers without those that must never be copied from another message.

    >>> outgoing_headers(Properties(headers={"x-death": [], "CC": [], "kept": 1}))
    {'kept': 1}
    """
    return {
        key: value for key, value in properties.headers.items() if not belongs_to_one_hop(str(key))
    }


def incoming_delivery(message: DeliveredMessage, queue: str) -> Delivery:
    """Return what arrived; never raises, whoever sent it."""
    wire = message.header.properties
    faults: list[str] = []
    read = {name: readable(getattr(wire, name), name, faults) for name in _READ}
    if wire.delivery_mode not in (None, _PERSISTENT, _TRANSIENT):
        faults.append(f"delivery_mode: {wire.delivery_mode} is not 1 or 2")
    headers = read["headers"] or {}
    count = headers.get("x-delivery-count")
    return Delivery(
        body=message.body,
        properties=Properties(
            content_type=read["content_type"],
            content_encoding=read["content_encoding"],
            headers=headers,
            persistent=wire.delivery_mode == _PERSISTENT,
            priority=wire.priority,
            correlation_id=read["correlation_id"],
            reply_to=read["reply_to"],
            expiration_ms=_expiration_ms(wire.expiration),
            message_id=read["message_id"],
            timestamp=read["timestamp"] if isinstance(read["timestamp"], datetime) else None,
            type=read["message_type"],
            user_id=read["user_id"],
            app_id=read["app_id"],
        ),
        queue=queue,
        exchange=message.exchange or "",
        routing_key=message.routing_key or "",
        redelivered=bool(message.redelivered),
        delivery_count=count if type(count) is int else None,
        unreadable=tuple(faults),
    )


def _expiration_ms(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
