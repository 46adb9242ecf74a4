"""One consumer on one channel, until the broker takes either away."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel, DeliveredMessage

from amqp_agents.brokers.base import OnDelivery
from amqp_agents.brokers.rabbitmq.faults import (
    APPLY_REMEDY,
    CALL_SECONDS,
    ConnectionLost,
    answered,
    reply_text,
)
from amqp_agents.brokers.rabbitmq.leases import Holding, Tally, UnacknowledgedLease
from amqp_agents.brokers.rabbitmq.wire import incoming_delivery
from amqp_agents.observability import Event, log_event

log = logging.getLogger(__name__)

Prepare = Callable[[AbstractChannel], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """How one subscription consumes.

    `prioritised`: of two consumers, the newer connection's gets every delivery; a half-open
    older one would otherwise swallow half of them until its heartbeats are missed.
    `prepare` runs before each consume, on the same channel.
    """

    queue: str
    prefetch: int
    no_ack: bool = False
    confirms: bool = False
    prioritised: bool = False
    prepare: Prepare | None = None


class ChannelConsumer:
    """Hands over what arrives; `ended` is set when nothing will arrive any more."""

    def __init__(
        self,
        channel: AbstractChannel,
        options: ConsumerOptions,
        on_delivery: OnDelivery,
        *,
        tally: Tally,
    ) -> None:
        self.channel = channel
        self.holding = Holding(channel, tally)
        self.ended = asyncio.Event()
        self._options, self._on_delivery = options, on_delivery
        self._tag: str | None = None
        self._delivering = True
        channel.closing.add_done_callback(lambda _: self.ended.set())
        channel.on_consumer_cancel_callbacks.add(lambda _: self.ended.set())

    async def begin(self, *, name: str, epoch: int) -> None:
        """Consume. Raises: ConnectionLost; what the broker closes the channel with."""
        await answered(self._begin(name, epoch))

    async def cancel(self) -> None:
        """Stop deliveries; what was handed over can still be settled."""
        if self._tag is not None and not self.channel.is_closed:
            # No deadline inside: a cancelled call would close the channel under its deliveries.
            call = asyncio.ensure_future(self.channel.basic_cancel(self._tag))
            call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait({call}, timeout=CALL_SECONDS)
        self._delivering = False

    def why_ended(self) -> Exception:
        """Return the broker's reason, or that the connection was lost."""
        if not self.channel.is_closed:
            return ConnectionLost("RabbitMQ cancelled the consumer (was the queue deleted?)")
        closing = self.channel.closing
        error = None if closing.cancelled() else closing.exception()
        if isinstance(error, library.ChannelClosed):
            return error
        return ConnectionLost("the connection to RabbitMQ was lost")

    async def _begin(self, name: str, epoch: int) -> None:
        channel, options = self.channel, self._options
        if options.prepare is not None:
            await options.prepare(channel)
        if not options.no_ack:
            await channel.basic_qos(prefetch_count=options.prefetch)
        # A new tag each time: 4.3 ends the connection when a cancelled tag is used again.
        self._tag = f"{name}.{epoch}.{uuid.uuid4().hex[:12]}"
        await channel.basic_consume(
            options.queue,
            self._deliver,
            no_ack=options.no_ack,
            consumer_tag=self._tag,
            arguments={"x-priority": epoch} if options.prioritised else None,
        )

    async def _deliver(self, message: DeliveredMessage) -> None:
        tag, queue = message.delivery_tag, self._options.queue
        if not self._delivering or tag is None:
            return  # left unsettled: it goes back when the channel is closed
        try:
            delivery = incoming_delivery(message, queue)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            reason = type(error).__name__  # its text may hold what the message holds
            log_event(log, Event.DELIVERY_UNREADABLE, error=error, queue=queue, reason=reason)
            if not self._options.no_ack:
                await self.channel.basic_reject(tag, requeue=False)
            return
        if self._options.no_ack:
            self._on_delivery(UnacknowledgedLease(delivery))
        else:
            self._on_delivery(self.holding.lease(delivery, tag))


def consume_failure(error: library.AMQPError, queue: str) -> str:
    """Say why a queue cannot be consumed, and what mends it."""
    text = reply_text(error)
    if isinstance(error, library.ChannelNotFoundEntity):
        return f"queue {queue!r} does not exist: {APPLY_REMEDY}"
    if isinstance(error, library.ChannelAccessRefused):
        return f"RabbitMQ refuses queue {queue!r}: {text}; grant the user read permission"
    return f"RabbitMQ closed the channel of queue {queue!r}: {text}"
