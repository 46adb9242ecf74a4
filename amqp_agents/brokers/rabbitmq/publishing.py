"""Publishing with confirms: one attempt, one of four answers, never without an end."""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from aiormq import exceptions as library

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.rabbitmq.channels import ChannelSet, PublishChannel
from amqp_agents.brokers.rabbitmq.faults import (
    APPLY_REMEDY,
    ConnectionLost,
    library_faults,
    reply_text,
)
from amqp_agents.brokers.rabbitmq.link import Link
from amqp_agents.brokers.rabbitmq.wire import (
    OutgoingProperties,
    outgoing_headers,
    outgoing_properties,
)
from amqp_agents.config import Settings
from amqp_agents.errors import (
    BrokerConnectionError,
    InvalidPayloadError,
    OutcomeUnknownError,
    PublishRejectedError,
    UnroutableMessageError,
)
from amqp_agents.protocol.limits import (
    BROKER_BODY_BYTES,
    check_body,
    check_properties,
    check_short,
)

PAUSE_SECONDS = 0.01
_EXCHANGE_NAME = re.compile(r"[a-zA-Z0-9_.:@#,/+ -]{0,127}")  # what the library lets pass

ChannelSource = Callable[[ChannelSet], Awaitable[PublishChannel]]


@dataclass
class _Attempt:
    publishing: Publishing
    properties: OutgoingProperties
    reached: str = "the publish window is full of unconfirmed messages"

    @property
    def target(self) -> str:
        exchange = self.publishing.exchange or "(default)"
        return f"message to exchange {exchange!r}, routing key {self.publishing.routing_key!r}"


class Publisher:
    """Publishes over the channels of one link, at most `publish_window` at a time."""

    def __init__(self, link: Link, settings: Settings, *, user: str | None) -> None:
        self._link, self._user = link, user
        self._max_body_bytes = max(settings.max_body_bytes, BROKER_BODY_BYTES)
        self._window = asyncio.Semaphore(settings.publish_window)
        self._channels: ChannelSet | None = None

    async def publish(
        self,
        publishing: Publishing,
        *,
        timeout_seconds: float,
        channel_of: ChannelSource | None = None,
    ) -> None:
        """Publish once, as `Broker.publish`; over what `channel_of` chooses if it is given."""
        check_publishing(publishing, self._max_body_bytes)
        properties = outgoing_properties(publishing, wire_id=uuid.uuid4().hex, user=self._user)
        attempt = _Attempt(publishing, properties)
        try:
            async with asyncio.timeout(timeout_seconds), self._window:
                while True:
                    if await self._sent(attempt, channel_of):
                        return
                    await asyncio.sleep(PAUSE_SECONDS)  # the link needs a moment to notice
        except TimeoutError:
            raise self._timed_out(attempt, timeout_seconds) from None

    async def _sent(self, attempt: _Attempt, channel_of: ChannelSource | None) -> bool:
        """Send and await the confirm; False if the connection was lost before it was sent."""
        try:
            channel = await self._channel(attempt, channel_of)
        except ConnectionLost:
            return False
        except library.AMQPChannelError as error:
            raise PublishRejectedError(
                f"not sent, RabbitMQ closed the channel before: {attempt.target}: "
                f"{reply_text(error)}"
            ) from error
        attempt.reached = "waiting for the confirm"
        try:
            with library_faults(), channel.message_to(attempt.publishing.exchange):
                await self._send(attempt, channel)
        except ConnectionLost as error:
            if attempt.properties.encoded:
                raise OutcomeUnknownError(f"{error} before a confirm: {attempt.target}") from error
            return False
        except library.ChannelClosed as error:
            if self._channels is not None:
                self._channels.forget_exchange(attempt.publishing.exchange)
            raise _channel_closed(error, attempt, channel) from error
        return True

    async def _channel(self, attempt: _Attempt, channel_of: ChannelSource | None) -> PublishChannel:
        attempt.reached = "waiting for the connection"
        session = await self._link.session()
        attempt.reached = "RabbitMQ takes no publishes now (memory or disk alarm)"
        await session.unblocked()
        attempt.reached = "waiting for a channel"
        if self._channels is None or self._channels.session is not session:
            self._channels = ChannelSet(session)
        channels = self._channels
        if not await channels.has_exchange(attempt.publishing.exchange):
            raise _no_exchange(attempt.publishing)
        return await (channel_of or ChannelSet.next)(channels)

    async def _send(self, attempt: _Attempt, channel: PublishChannel) -> None:
        publishing = attempt.publishing
        try:
            await channel.channel.basic_publish(
                publishing.body,
                exchange=publishing.exchange,
                routing_key=publishing.routing_key,
                properties=attempt.properties,
                mandatory=publishing.mandatory,
            )
        except library.PublishError:
            raise UnroutableMessageError(f"no queue takes the {attempt.target}") from None
        except library.DeliveryError:
            raise PublishRejectedError(
                f"RabbitMQ refused the {attempt.target} (a queue is full?)"
            ) from None

    def _timed_out(self, attempt: _Attempt, seconds: float) -> Exception:
        if attempt.properties.encoded:
            return OutcomeUnknownError(f"no confirm within {seconds:g} s: {attempt.target}")
        reason = attempt.reached
        if self._link.live is None and self._link.failure is not None:
            reason = str(self._link.failure)
        return BrokerConnectionError(f"not sent within {seconds:g} s: {attempt.target}: {reason}")


def check_publishing(publishing: Publishing, max_body_bytes: int) -> None:
    """Refuse what AMQP cannot carry, before anything is sent.

    Raises: InvalidPayloadError naming the field and the limit.
    """
    for name in ("exchange", "routing_key"):
        check_short(name, getattr(publishing, name))
    if _EXCHANGE_NAME.fullmatch(publishing.exchange) is None:
        raise InvalidPayloadError(
            f"exchange {publishing.exchange[:64]!r} cannot be published to: its name must be at "
            "most 127 ASCII letters, digits and -_.:@#,/+ or spaces"
        )
    check_body(publishing.body, max_body_bytes)
    headers = outgoing_headers(publishing.properties)
    check_properties(replace(publishing.properties, headers=headers))


def _no_exchange(publishing: Publishing) -> UnroutableMessageError:
    return UnroutableMessageError(f"exchange not found: {publishing.exchange}; {APPLY_REMEDY}")


def _channel_closed(
    error: library.ChannelClosed, attempt: _Attempt, channel: PublishChannel
) -> Exception:
    """Say what an error that closed the channel means for one message that was on it.

    Every message under way on the channel gets the same error, but one of them caused it;
    those before it may be stored.
    """
    publishing, text = attempt.publishing, reply_text(error)
    exchange = publishing.exchange or "amq.default"
    about_exchange = f"exchange '{exchange}' in vhost" in text
    about_key = "topic '" not in text or f"topic '{publishing.routing_key}'" in text
    match error:
        case library.ChannelNotFoundEntity() if about_exchange:
            if channel.was_alone_to(publishing.exchange):
                return _no_exchange(publishing)
        case library.ChannelAccessRefused() if about_exchange and about_key:
            return UnroutableMessageError(f"RabbitMQ refuses the {attempt.target}: {text}")
        case library.ChannelPreconditionFailed():
            if f"message size {len(publishing.body)} " in text:
                return InvalidPayloadError(f"RabbitMQ refuses the {attempt.target}: {text}")
    return OutcomeUnknownError(f"no confirm, the channel was closed: {attempt.target}: {text}")
