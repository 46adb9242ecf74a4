"""A stored message, what its deaths leave on it, and how it looks to who receives it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from amqp_agents.pipeline import Delivery
from amqp_agents.protocol.properties import Properties, belongs_to_one_hop


class Reason(StrEnum):
    """Why a queue gave a message to its dead-letter exchange."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAXLEN = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


@dataclass(frozen=True, slots=True)
class Death:
    """One way of dying in one queue, and how often it happened."""

    queue: str
    reason: Reason
    exchange: str
    routing_key: str
    at: datetime
    count: int = 1
    expiration_ms: int | None = None


@dataclass(slots=True)
class Message:
    """One copy of a message, in one queue or on its way to it."""

    body: bytes
    properties: Properties
    exchange: str
    routing_key: str
    deaths: tuple[Death, ...] = ()  # newest first
    due: float | None = None
    position: int = 0
    acquired: int = 0  # how often it was handed out and came back
    failures: int = 0  # ... because a consumer was lost


def as_on_wire(properties: Properties) -> Properties:
    """Return the properties as they go out: whole seconds of UTC, no header of a broker's."""
    headers = {
        name: _second(value) if isinstance(value, datetime) else value
        for name, value in properties.headers.items()
        if not belongs_to_one_hop(name)
    }
    stamp = properties.timestamp
    return replace(properties, headers=headers, timestamp=None if stamp is None else _second(stamp))


def delivery_of(message: Message, queue: str, *, counts: bool) -> Delivery:
    """Return the message as an arrival; `counts` if the queue tells how often it failed."""
    headers = {**message.properties.headers, **_death_headers(message.deaths)}
    if counts and message.acquired:
        headers["x-acquired-count"] = message.acquired
    if counts and message.failures:
        headers["x-delivery-count"] = message.failures
    return Delivery(
        body=message.body,
        properties=replace(message.properties, headers=headers),
        queue=queue,
        exchange=message.exchange,
        routing_key=message.routing_key,
        redelivered=message.acquired > 0,
        delivery_count=message.failures if counts and message.failures else None,
    )


def after_death(
    message: Message, queue: str, reason: Reason, *, exchange: str, routing_key: str, now: float
) -> Message:
    """Return what the dead-letter exchange gets: the death on record, the expiration gone."""
    at = datetime.fromtimestamp(int(now), UTC)
    known = {(death.queue, death.reason): death for death in message.deaths}
    death = known.pop((queue, reason), None)
    death = (
        Death(
            queue,
            reason,
            message.exchange,
            message.routing_key,
            at,
            expiration_ms=message.properties.expiration_ms,
        )
        if death is None
        else replace(death, at=at, count=death.count + 1)
    )
    return Message(
        body=message.body,
        properties=replace(message.properties, expiration_ms=None),
        exchange=exchange,
        routing_key=routing_key,
        deaths=(death, *known.values()),
    )


def is_cycle(deaths: tuple[Death, ...], queue: str) -> bool:
    """Return whether the message came round to `queue` without anybody having rejected it.

    Such a message goes nowhere.
    Source: RabbitMQ, dead letter exchanges, "Dead Lettering can cause cycles".
    """
    since = []
    for death in deaths:
        since.append(death.reason)
        if death.queue == queue:
            return Reason.REJECTED not in since
    return False


def _death_headers(deaths: tuple[Death, ...]) -> Mapping[str, Any]:
    if not deaths:
        return {}
    headers: dict[str, Any] = {"x-death": [_entry(death) for death in deaths]}
    for which, death in (("first", deaths[-1]), ("last", deaths[0])):
        headers[f"x-{which}-death-reason"] = death.reason.value
        headers[f"x-{which}-death-queue"] = death.queue
        headers[f"x-{which}-death-exchange"] = death.exchange
    return headers


def _entry(death: Death) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "count": death.count,
        "reason": death.reason.value,
        "queue": death.queue,
        "time": death.at,
        "exchange": death.exchange,
        "routing-keys": [death.routing_key],
    }
    if death.expiration_ms is not None:
        entry["original-expiration"] = str(death.expiration_ms)
    return entry


def _second(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
