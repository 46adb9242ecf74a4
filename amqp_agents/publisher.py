"""Sending: from an envelope to an exchange and a routing key, confirmed within a time limit."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

from amqp_agents.brokers.base import Broker, Outlet, Publishing
from amqp_agents.clock import Clock
from amqp_agents.config import Settings
from amqp_agents.errors import (
    BrokerConnectionError,
    BrokerError,
    InvalidPayloadError,
    OutcomeUnknownError,
    PermissionDeniedError,
    PublishRejectedError,
    UnroutableMessageError,
)
from amqp_agents.observability import Telemetry
from amqp_agents.protocol import AgentMessage, MessageType, WireLimits, encode
from amqp_agents.topology import names

DEPTH_HEADER = "aa-depth"
ATTEMPT_LIMIT_SECONDS = 10.0
ADDRESSED = (
    MessageType.REQUEST,
    MessageType.DIRECT,
    MessageType.RESPONSE,
    MessageType.ERROR,
)
REPEATABLE = (BrokerConnectionError, PublishRejectedError, OutcomeUnknownError)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an envelope goes, and whether the broker may let it expire on the way."""

    exchange: str
    routing_key: str
    mandatory: bool
    expires: bool


def destination_of(message: AgentMessage) -> Destination:
    """Return where the envelope says the message goes.

    Addressed messages must reach a queue; an event nobody listens to is no error, and carries
    no expiration, since a stale one is dropped by its reader.

    >>> destination_of(AgentMessage(sender="a", recipient="b", message_type="request")).exchange
    'agent.direct'
    >>> destination_of(AgentMessage(sender="a", message_type="event", intent="x")).routing_key
    'event.x'

    Raises: InvalidPayloadError for an addressed message without a recipient,
        PermissionDeniedError for a sensitive one that would be spread.
    """
    if message.recipient is not None and message.recipient_mode != "broadcast":
        return Destination(names.DIRECT, message.recipient.agent_id, True, True)
    if message.message_type is MessageType.HEARTBEAT:
        return Destination(names.EVENTS, names.event_key("heartbeat"), False, False)
    if message.recipient is None and message.message_type in ADDRESSED:
        raise InvalidPayloadError(
            f"a {message.message_type.value} message needs a recipient; to tell whoever listens, "
            "publish an event or a broadcast"
        )
    broadcast = message.message_type is not MessageType.EVENT
    if broadcast and message.policy.sensitivity == "high":
        raise PermissionDeniedError(
            "a message of high sensitivity is never broadcast; send it to one agent with to="
        )
    key = names.event_key(message.intent, broadcast=broadcast)
    return Destination(names.EVENTS, key, False, False)


class AsyncPublisher:
    """Publishes envelopes without waiting for an answer, only for the broker's confirm."""

    def __init__(self, broker: Broker, *, settings: Settings, telemetry: Telemetry) -> None:
        self._broker, self._telemetry = broker, telemetry
        self._limits = WireLimits(max_body_bytes=settings.max_body_bytes)
        self._timeout_seconds = settings.publish_timeout_seconds

    @property
    def clock(self) -> Clock:
        """The clock of its broker."""
        return self._broker.clock

    async def publish(
        self,
        message: AgentMessage,
        *,
        depth: int = 0,
        timeout_seconds: float | None = None,
        via: Outlet | None = None,
    ) -> None:
        """Return once the broker has confirmed the message; tries again within the limit.

        Every try carries the same idempotency key. `via` publishes through something other
        than the broker itself (the channel of a direct reply-to).

        Raises: UnroutableMessageError (nobody has declared the agent), ExpiredMessageError,
            InvalidPayloadError, and at the limit BrokerConnectionError (nothing was sent),
            PublishRejectedError or OutcomeUnknownError (it may have arrived).
        """
        where = destination_of(message)
        publishing = self._encoded(message, where, {DEPTH_HEADER: depth} if depth else {})
        try:
            await self.confirmed(publishing, timeout_seconds=timeout_seconds, via=via)
        except UnroutableMessageError as error:
            if where.exchange != names.DIRECT or "exchange not found" in str(error):
                raise
            self._telemetry.unroutable(message)
            raise UnroutableMessageError(
                f"agent {where.routing_key!r} has no queue on this broker; start it with "
                "'amqp-agents run --declare' or declare it with 'amqp-agents topology apply'"
            ) from error
        self._telemetry.published(message, where.exchange, where.routing_key)

    async def reply(self, message: AgentMessage, *, to: str, timeout_seconds: float) -> None:
        """Send an answer to a reply address.

        Raises: PermissionDeniedError for an address that is not a reply queue of ours,
            UnroutableMessageError if its owner is gone.
        """
        where = reply_destination(to)
        await self.confirmed(self._encoded(message, where, {}), timeout_seconds=timeout_seconds)
        self._telemetry.published(message, where.exchange, where.routing_key)

    async def confirmed(
        self,
        publishing: Publishing,
        *,
        timeout_seconds: float | None = None,
        via: Outlet | None = None,
    ) -> None:
        """Publish, and try again whatever may succeed later, until the limit."""
        clock = self._broker.clock
        outlet: Outlet = self._broker if via is None else via
        limit = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        end = clock.monotonic() + limit
        unknown: OutcomeUnknownError | None = None
        for attempt in count():
            one = min(max(0.0, end - clock.monotonic()), ATTEMPT_LIMIT_SECONDS)
            try:
                await outlet.publish(publishing, timeout_seconds=one)
                self._telemetry.confirmed(publishing.exchange)
                return
            except REPEATABLE as error:
                unknown = error if isinstance(error, OutcomeUnknownError) else unknown
                longest = 0.05 * 2 ** min(attempt, 5)
                pause = min(1.0, longest) * random.uniform(0.5, 1.0)  # noqa: S311
                if end - clock.monotonic() <= pause:
                    self._failed(publishing, error)
                    raise (unknown or error) from None
                self._telemetry.publish_repeated(
                    str(publishing.properties.headers.get("aa-message-id")),
                    publishing.exchange,
                    error,
                )
                await clock.sleep(pause)
            except (UnroutableMessageError, InvalidPayloadError) as error:
                self._failed(publishing, error)
                raise

    def _encoded(
        self, message: AgentMessage, where: Destination, headers: Mapping[str, Any]
    ) -> Publishing:
        clock = self._broker.clock
        if clock.ahead_seconds:  # envelopes are written by the machine's clock
            moved = message.timestamp + timedelta(seconds=clock.ahead_seconds)
            message = message.model_copy(update={"timestamp": moved})
        body, properties = encode(message, now=clock.time(), limits=self._limits)
        properties = replace(
            properties,
            headers={**properties.headers, **headers},
            expiration_ms=properties.expiration_ms if where.expires else None,
        )
        return Publishing(
            where.exchange, where.routing_key, body, properties, mandatory=where.mandatory
        )

    def _failed(self, publishing: Publishing, error: BrokerError | InvalidPayloadError) -> None:
        message_id = str(publishing.properties.headers.get("aa-message-id"))
        self._telemetry.publish_failed(message_id, publishing.exchange, error)


def reply_destination(address: str) -> Destination:
    """Return where a reply address leads; only reply queues of ours are written to.

    >>> reply_destination("agent.reply.3f2a").routing_key
    '3f2a'
    """
    if address.startswith(f"{names.DIRECT_REPLY_TO}."):
        # The broker itself wrote this token; RabbitMQ up to 4.0 returns a mandatory reply to
        # one as unroutable although it was delivered.
        return Destination("", address, False, False)
    prefix = f"{names.REPLY}."
    if not address.startswith(prefix) or address == prefix:
        raise PermissionDeniedError(
            f"reply address {address[:80]!r} is not a reply queue of ours ({prefix}…)"
        )
    return Destination(names.REPLY, address.removeprefix(prefix), True, True)
