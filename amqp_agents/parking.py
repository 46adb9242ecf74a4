"""Copies of a delivery on its way to wait or to rest: retry, dead letter, replay. Pure.

The body is never touched. Properties are kept, except those that belong to one hop
(message_id, user_id, expiration, priority of a delayed copy); their first values ride along
as `aa-orig-*`. Broker-owned headers are stripped at the broker's door.
"""

import traceback
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from amqp_agents.brokers.base import Publishing
from amqp_agents.observability.telemetry import code_of
from amqp_agents.pipeline import ATTEMPT_HEADER, Delivery
from amqp_agents.protocol import CLOCK_HEADER, carriable
from amqp_agents.protocol.error_payload import clipped, text_of
from amqp_agents.protocol.limits import MAX_SHORT_BYTES
from amqp_agents.protocol.properties import Properties, belongs_to_one_hop
from amqp_agents.topology import names
from amqp_agents.topology.delays import (
    MAX_DELAY_SECONDS,
    delay_headers,
    whole_seconds,
    without_delay_headers,
)

FAULT_PREFIX = "aa-fault-"
DUE_AT_HEADER = "aa-due-at"
RETRY_ID_HEADER = "aa-retry-id"
ORIG_MESSAGE_ID = "aa-orig-message-id"
ORIG_EXCHANGE = "aa-orig-exchange"
ORIG_ROUTING_KEY = "aa-orig-routing-key"

MAX_FAULT_BYTES = 2_000
MAX_STACK_BYTES = 8_000
MAX_FOREIGN_BYTES = 32_000
SHORT_PROPERTIES = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "type",
    "app_id",
)


def retry_copy(
    delivery: Delivery, *, agent: str, delay_seconds: float, counted: bool, now: float
) -> Publishing:
    """Return the copy that waits in the delay chain and comes back to this agent only.

    A copy without its own expiration and priority: a delay level would take the first as its
    own time to live, and expire the second behind more urgent ones.
    """
    seconds = whole_seconds(min(delay_seconds, MAX_DELAY_SECONDS))
    headers = {
        **_carried(delivery),
        **delay_headers(seconds),
        ATTEMPT_HEADER: delivery.attempt + (1 if counted else 0),
        DUE_AT_HEADER: int((now + seconds) * 1000),
    }
    properties = replace(_one_hop_stripped(delivery.properties, headers), priority=None)
    return Publishing(names.DELAY, agent, delivery.body, properties, mandatory=True)


def dead_letter(
    delivery: Delivery, *, agent: str, error: BaseException, now: float, stack: bool = False
) -> Publishing:
    """Return the copy that rests in the agent's dead-letter queue, with its reason."""
    headers = _carried(delivery) | {
        f"{FAULT_PREFIX}code": code_of(error).value,
        f"{FAULT_PREFIX}type": clipped(type(error).__name__, MAX_SHORT_BYTES),
        f"{FAULT_PREFIX}message": clipped(text_of(error), MAX_FAULT_BYTES),
        f"{FAULT_PREFIX}at": datetime.fromtimestamp(now, UTC).replace(microsecond=0),
        f"{FAULT_PREFIX}agent": agent,
        f"{FAULT_PREFIX}queue": delivery.queue,
        ATTEMPT_HEADER: delivery.attempt,
    }
    if stack:
        trace = "".join(traceback.format_exception(error))
        headers[f"{FAULT_PREFIX}stack"] = clipped(trace, MAX_STACK_BYTES)
    properties = _one_hop_stripped(delivery.properties, headers)
    return Publishing(names.DLX, agent, delivery.body, properties, mandatory=True)


def replayed(delivery: Delivery, *, agent: str, retry_id: str, now: float) -> Publishing:
    """Return the copy of a dead letter that goes back to its agent's inbox, and only there.

    It keeps its logical id and idempotency key, starts at attempt 1, and its age counts from
    now: a dead letter is usually older than its ttl.
    """
    kept = {
        key: value
        for key, value in _carried(delivery).items()
        if not key.startswith(FAULT_PREFIX) and key not in (ATTEMPT_HEADER, DUE_AT_HEADER)
    }
    headers = kept | {RETRY_ID_HEADER: retry_id, CLOCK_HEADER: int(now * 1000)}
    properties = _one_hop_stripped(delivery.properties, headers)
    return Publishing(names.DIRECT, agent, delivery.body, properties, mandatory=True)


def _carried(delivery: Delivery) -> dict[str, Any]:
    """The headers a copy takes along, with the first hop's facts added once."""
    properties = delivery.properties
    first = {
        ORIG_MESSAGE_ID: properties.message_id,
        "aa-orig-user-id": properties.user_id,
        "aa-orig-expiration": properties.expiration_ms,
        ORIG_EXCHANGE: delivery.exchange,
        ORIG_ROUTING_KEY: delivery.routing_key,
    }
    headers = without_delay_headers(_carriable(properties.headers))
    if ORIG_ROUTING_KEY in headers:
        return headers
    return headers | {key: value for key, value in first.items() if value is not None}


def _carriable(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers that can be sent again: ours first, a foreign sender's as far as they fit.

    A value of a type we cannot write (a float, a table, bytes) goes along as text.
    """
    kept: dict[str, Any] = {}
    room = MAX_FOREIGN_BYTES
    for key, value in sorted(headers.items(), key=lambda item: not item[0].startswith("aa-")):
        if belongs_to_one_hop(key):
            continue
        written = carriable({key: value}) or carriable({key: clipped(str(value), 1_000)})
        room -= len(key.encode()) + len(str(value).encode("utf-8", "replace")) + 8
        if room >= 0:
            kept |= written
    return kept


def _one_hop_stripped(properties: Properties, headers: Mapping[str, Any]) -> Properties:
    # Text that was no UTF-8 was read with replacement characters, three bytes each, and may
    # be too long now to be written again.
    texts = {name: getattr(properties, name) for name in SHORT_PROPERTIES}
    fitting: dict[str, Any] = {
        name: clipped(text, MAX_SHORT_BYTES) for name, text in texts.items() if text
    }
    return replace(
        properties,
        headers=headers,
        message_id=None,
        user_id=None,
        expiration_ms=None,
        persistent=True,
        **fitting,
    )
