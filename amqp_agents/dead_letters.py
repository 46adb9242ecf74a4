"""Dead letters: what each says of itself, and how they are looked at and sent back.

Looking never consumes: a browser has a channel of its own, and what it did not settle is
back in the queue once the browser is closed.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from amqp_agents import parking
from amqp_agents.brokers.base import Broker, Browser, Lease
from amqp_agents.errors import (
    BrokerError,
    TopologyMissingError,
    UnroutableMessageError,
)
from amqp_agents.observability.telemetry import written_id
from amqp_agents.pipeline import Delivery
from amqp_agents.publisher import AsyncPublisher
from amqp_agents.topology import names

UNKNOWN = "unknown"

# Source: https://www.rabbitmq.com/docs/dlx, reasons of dead-lettering.
BROKER_REASONS: Mapping[str, str] = {
    "expired": "RabbitMQ: it outlived its time to live in the inbox",
    "delivery_limit": "RabbitMQ: it was delivered more often than the delivery limit allows",
    "rejected": "RabbitMQ: a consumer rejected it",
    "maxlen": "RabbitMQ: the inbox was full",
}


@dataclass(frozen=True, slots=True)
class DeadLetterFacts:
    """Who gave a message up, when and why; `code` is an error code or the broker's reason.

    `at` is when it died, `sent_at` when it was written; `returned` counts how often it was
    handed out and came back, looks included. What the message does not say is None.
    """

    agent: str
    message_id: str
    code: str
    message: str
    attempts: int
    by_broker: bool
    error: str | None = None
    at: datetime | None = None
    sent_at: datetime | None = None
    sender: str | None = None
    intent: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    returned: int | None = None
    body_bytes: int = 0


def describe(delivery: Delivery, *, agent: str) -> DeadLetterFacts:
    """Return what a dead letter of `agent` says of itself; never raises, whoever wrote it.

    The broker's word about the agent's own inbox counts first: a copy that we parked has none.
    """
    properties, headers = delivery.properties, delivery.properties.headers
    death = _death(headers, names.inbox(agent))
    ours = _text(headers.get(f"{parking.FAULT_PREFIX}code"))
    by_broker = death is not None and (ours is None or _is_of(death, names.inbox(agent)))
    reason = _broker_reason(death or {}) if by_broker else _our_reason(headers, ours)
    return DeadLetterFacts(
        agent=agent,
        message_id=message_id_of(delivery),
        attempts=delivery.attempt,
        by_broker=by_broker,
        sent_at=_moment(properties.timestamp),
        sender=_text(headers.get("aa-sender")) or properties.app_id,
        intent=_text(headers.get("aa-intent")),
        exchange=_origin(headers, death, "exchange", delivery.exchange),
        routing_key=_origin(headers, death, "routing-key", delivery.routing_key),
        returned=delivery.delivery_count,
        body_bytes=len(delivery.body),
        **reason,
    )


def message_id_of(delivery: Delivery) -> str:
    """Return the id a dead letter is asked for by: its own, else one made from its body.

    >>> from amqp_agents.protocol.properties import Properties
    >>> message_id_of(Delivery(b'{"message_id": "M-1"}', Properties(), "q"))
    'M-1'
    >>> message_id_of(Delivery(b"?", Properties(), "q"))
    'body-8a8de823d5ed3e12'
    """
    headers = delivery.properties.headers
    found = _text(headers.get("aa-message-id")) or written_id(delivery)
    found = found or _text(headers.get(parking.ORIG_MESSAGE_ID)) or delivery.properties.message_id
    return found or f"body-{hashlib.sha256(delivery.body).hexdigest()[:16]}"


@asynccontextmanager
async def browsing(broker: Broker, agent: str) -> AsyncIterator[Browser]:
    """Look into the agent's dead-letter queue; everything unsettled goes back at the end."""
    browser = await broker.browse(names.dead_letter_queue(agent))
    try:
        yield browser
    finally:
        await browser.close()


async def listed(broker: Broker, agent: str, *, limit: int) -> list[DeadLetterFacts]:
    """Return what the first `limit` dead letters say, oldest first."""
    found: list[DeadLetterFacts] = []
    async with browsing(broker, agent) as browser:
        while len(found) < limit and (lease := await browser.get()) is not None:
            found.append(describe(lease.delivery, agent=agent))
    return found


async def found(broker: Broker, agent: str, message_id: str) -> Delivery | None:
    """Return the first dead letter with this id, left where it is; None if there is none."""
    async with browsing(broker, agent) as browser:
        lease = await _sought(browser, message_id)
    return None if lease is None else lease.delivery


class Replay:
    """Sends dead letters back to the inbox of the agent that failed, and to nobody else.

    Each one: a copy confirmed in the inbox, THEN the dead letter is removed. So whatever
    interrupts a replay, what was not reached is still there, and another one goes on.

    Units:  `per_second` messages; `on_replayed` is called after each.
    """

    def __init__(
        self,
        broker: Broker,
        publisher: AsyncPublisher,
        agent: str,
        *,
        per_second: float = 100.0,
        on_replayed: Callable[[DeadLetterFacts], None] | None = None,
    ) -> None:
        self.count = 0
        self._broker, self._publisher, self._agent = broker, publisher, agent
        self._pause_seconds, self._on_replayed = 1.0 / per_second, on_replayed
        self._retry_id = uuid4().hex

    async def one(self, message_id: str) -> DeadLetterFacts | None:
        """Replay the first dead letter with this id; None if there is none.

        Raises: as `all`.
        """
        async with browsing(self._broker, self._agent) as browser:
            lease = await _sought(browser, message_id)
            return None if lease is None else await self._sent_back(lease)

    async def all(self, most: int) -> int:
        """Replay up to `most` dead letters, oldest first; return how many.

        One that failed again since this replay began ends it, so that it cannot run in a circle.

        Raises: TopologyMissingError if the agent has no inbox or no dead-letter queue,
            BrokerError; nothing that was not replayed is removed.
        """
        async with browsing(self._broker, self._agent) as browser:
            while self.count < most and (lease := await browser.get()) is not None:
                headers = lease.delivery.properties.headers
                if headers.get(parking.RETRY_ID_HEADER) == self._retry_id:
                    break
                await self._sent_back(lease)
                if self.count < most:
                    await self._broker.clock.sleep(self._pause_seconds)
        return self.count

    async def _sent_back(self, lease: Lease) -> DeadLetterFacts:
        facts = describe(lease.delivery, agent=self._agent)
        copy = parking.replayed(
            lease.delivery,
            agent=self._agent,
            retry_id=self._retry_id,
            now=self._broker.clock.time(),
        )
        try:
            await self._publisher.confirmed(copy)
        except UnroutableMessageError as error:
            raise TopologyMissingError(
                [f"queue {names.inbox(self._agent)}"],
                remedy="the dead letter was kept; run 'amqp-agents topology apply', then replay",
            ) from error
        if not await lease.ack():
            raise BrokerError(
                f"message {facts.message_id} was sent back, but the connection was lost before "
                "its dead letter could be removed; replaying that again repeats it with the "
                "same idempotency key"
            )
        self.count += 1
        if self._on_replayed is not None:
            self._on_replayed(facts)
        return facts


async def _sought(browser: Browser, message_id: str) -> Lease | None:
    while (lease := await browser.get()) is not None:
        if message_id_of(lease.delivery) == message_id:
            return lease
    return None


def _our_reason(headers: Mapping[str, Any], code: str | None) -> dict[str, Any]:
    prefix = parking.FAULT_PREFIX
    return {
        "code": code or UNKNOWN,
        "error": _text(headers.get(f"{prefix}type")),
        "message": _text(headers.get(f"{prefix}message")) or "it does not say why it is here",
        "at": _moment(headers.get(f"{prefix}at")),
    }


def _broker_reason(death: Mapping[str, Any]) -> dict[str, Any]:
    reason = _text(death.get("reason")) or UNKNOWN
    return {
        "code": reason,
        "message": BROKER_REASONS.get(reason, f"RabbitMQ: {reason}"),
        "at": _moment(death.get("time")),
    }


def _death(headers: Mapping[str, Any], inbox: str) -> Mapping[str, Any] | None:
    """The broker's last word about the inbox, else about any queue: the newest stands first."""
    told = headers.get("x-death")
    deaths = [each for each in told if isinstance(each, Mapping)] if isinstance(told, list) else []
    own = [each for each in deaths if _is_of(each, inbox)]
    return next(iter(own + deaths), None)


def _is_of(death: Mapping[str, Any], inbox: str) -> bool:
    return _text(death.get("queue")) == inbox


def _origin(
    headers: Mapping[str, Any], death: Mapping[str, Any] | None, what: str, here: str
) -> str:
    ours = _text(headers.get(f"aa-orig-{what}"))
    theirs = (death or {}).get("exchange" if what == "exchange" else "routing-keys")
    if isinstance(theirs, list):
        theirs = theirs[0] if theirs else None
    if ours is not None:
        return ours
    return here if not isinstance(theirs, str) else theirs


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _moment(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
