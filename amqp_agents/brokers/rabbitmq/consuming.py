"""Consumers: one channel and one restore loop for each, so that one fault stops one queue."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel, DeliveredMessage

from amqp_agents.brokers.base import OnDelivery, SubscriptionState
from amqp_agents.brokers.rabbitmq.faults import (
    APPLY_REMEDY,
    CALL_SECONDS,
    ConnectionLost,
    answered,
    backoff_seconds,
    reply_text,
    tell_if_it_dies,
)
from amqp_agents.brokers.rabbitmq.leases import Holding, Tally, UnacknowledgedLease
from amqp_agents.brokers.rabbitmq.link import Link
from amqp_agents.brokers.rabbitmq.session import Session
from amqp_agents.brokers.rabbitmq.wire import incoming_delivery
from amqp_agents.errors import AgentError, BrokerError

log = logging.getLogger(__name__)

BACKOFF_SECONDS, BACKOFF_CAP_SECONDS = 0.1, 5.0

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


class RabbitMQSubscription:
    """Consumes one queue over every loss: of the connection, the channel, the queue itself.

    A handler that runs is not touched by any of these; its settlement may be lost.
    """

    def __init__(
        self, link: Link, on_delivery: OnDelivery, options: ConsumerOptions, *, tally: Tally
    ) -> None:
        self._link, self._on_delivery, self._options = link, on_delivery, options
        self._tally = tally
        self._state = SubscriptionState.STARTING
        self._failure: str | None = None
        self._failures = 0
        self._epoch = 0
        self._up = asyncio.Event()
        self._holdings: list[Holding] = []  # the newest last
        self._beginning = asyncio.Lock()  # held while the broker is asked for a consumer
        self._consumer: tuple[AbstractChannel, str] | None = None
        self._delivering, self._closed = True, False
        self._task = asyncio.create_task(self._restore(), name=f"consume {options.queue}")
        tell_if_it_dies(self._task)

    @property
    def state(self) -> SubscriptionState:
        return self._state

    @property
    def failure(self) -> str | None:
        if self._state in (SubscriptionState.UP, SubscriptionState.CANCELLED):
            return None
        if self._link.live is None and self._link.failure is not None:
            return str(self._link.failure)
        return self._failure

    @property
    def epoch(self) -> int:
        """The number of the connection it consumes on, or did last; 0 before the first."""
        return self._epoch

    @property
    def closed(self) -> bool:
        """Whether it was closed by whoever opened it."""
        return self._closed

    @property
    def channel(self) -> AbstractChannel | None:
        """The channel deliveries come by now, if they do."""
        return self._holdings[-1].channel if self._state is SubscriptionState.UP else None

    async def ready(self, timeout_seconds: float) -> None:
        queue = self._options.queue
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._up.wait()
        except TimeoutError:
            reason = self.failure or "RabbitMQ did not answer"
            raise BrokerError(
                f"queue {queue!r} is not consumed after {timeout_seconds:g} s: {reason}"
            ) from None
        if self._state is SubscriptionState.CANCELLED:
            raise BrokerError(f"the subscription of queue {queue!r} was cancelled")

    async def restored(self) -> None:
        """Wait until deliveries can flow, for as long as the caller likes."""
        await self._up.wait()

    async def cancel(self) -> None:
        if self._state is SubscriptionState.CANCELLED:
            return
        self._state = SubscriptionState.CANCELLED
        self._up.set()  # whoever waits for it learns that it was cancelled
        async with self._beginning:  # a consumer nobody knows of would swallow messages
            self._task.cancel()
        await asyncio.wait({self._task})
        await self._cancel_consumer()
        self._delivering = False

    async def close(self) -> None:
        self._closed = True
        await self.cancel()
        holdings, self._holdings = self._holdings, []
        await asyncio.gather(*(holding.close() for holding in holdings))

    async def _cancel_consumer(self) -> None:
        if self._consumer is None or self._consumer[0].is_closed:
            return
        channel, tag = self._consumer
        # No deadline inside: a cancelled call would close the channel under its deliveries.
        call = asyncio.ensure_future(channel.basic_cancel(tag))
        call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({call}, timeout=CALL_SECONDS)

    async def _restore(self) -> None:
        while True:
            try:
                await self._consume(await self._link.session())
            except library.AMQPChannelError as error:
                self._fail(consume_failure(error, self._options.queue))
            except AgentError as error:
                self._fail(str(error))
            pause = backoff_seconds(self._failures, BACKOFF_SECONDS, BACKOFF_CAP_SECONDS)
            self._failures += 1
            await asyncio.sleep(pause)

    def _fail(self, reason: str) -> None:
        if self._state is SubscriptionState.CANCELLED:
            return
        self._up.clear()
        if (self._state, self._failure) != (SubscriptionState.FAILING, reason):
            log.warning("consumer_failing queue=%s reason=%s", self._options.queue, reason)
        self._state, self._failure = SubscriptionState.FAILING, reason

    async def _consume(self, session: Session) -> None:
        """Consume until the broker takes the consumer or the channel away; always raises."""
        channel = await session.open_channel(confirms=self._options.confirms)
        ended = asyncio.Event()
        channel.closing.add_done_callback(lambda _: ended.set())
        channel.on_consumer_cancel_callbacks.add(lambda _: ended.set())
        holding = Holding(channel, self._tally)
        self._holdings = [each for each in self._holdings if not each.channel.is_closed]
        self._holdings.append(holding)
        try:
            async with self._beginning:
                tag = await answered(self._begin(holding, session.epoch))
                self._consumer = channel, tag
            if not ended.is_set():
                self._consuming(session.epoch)
            await ended.wait()
        except (library.AMQPChannelError, AgentError):
            holding.retire()
            raise
        # After a cancel by the broker, what was delivered can still be settled.
        holding.retire()
        raise _why_ended(channel)

    def _consuming(self, epoch: int) -> None:
        if self._state is SubscriptionState.CANCELLED:
            return
        self._state, self._failure, self._failures = SubscriptionState.UP, None, 0
        self._epoch = epoch
        self._up.set()
        log.info("consuming queue=%s epoch=%d", self._options.queue, epoch)

    async def _begin(self, holding: Holding, epoch: int) -> str:
        channel, options = holding.channel, self._options
        if options.prepare is not None:
            await options.prepare(channel)
        if not options.no_ack:
            await channel.basic_qos(prefetch_count=options.prefetch)

        async def deliver(message: DeliveredMessage) -> None:
            await self._deliver(message, holding)

        # A new tag each time: 4.3 ends the connection when a cancelled tag is used again.
        tag = f"{self._link.name}.{epoch}.{uuid.uuid4().hex[:12]}"
        await channel.basic_consume(
            options.queue,
            deliver,
            no_ack=options.no_ack,
            consumer_tag=tag,
            arguments={"x-priority": epoch} if options.prioritised else None,
        )
        return tag

    async def _deliver(self, message: DeliveredMessage, holding: Holding) -> None:
        tag, queue = message.delivery_tag, self._options.queue
        if not self._delivering or tag is None:
            return  # left unsettled: it goes back when the channel is closed
        try:
            delivery = incoming_delivery(message, queue)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            log.exception("delivery_unreadable queue=%s", queue)
            if not self._options.no_ack:
                await holding.channel.basic_reject(tag, requeue=False)
            return
        if self._options.no_ack:
            self._on_delivery(UnacknowledgedLease(delivery))
        else:
            self._on_delivery(holding.lease(delivery, tag))


def consume_failure(error: library.AMQPError, queue: str) -> str:
    """Say why a queue cannot be consumed, and what mends it."""
    text = reply_text(error)
    if isinstance(error, library.ChannelNotFoundEntity):
        return f"queue {queue!r} does not exist: {APPLY_REMEDY}"
    if isinstance(error, library.ChannelAccessRefused):
        return f"RabbitMQ refuses queue {queue!r}: {text}; grant the user read permission"
    return f"RabbitMQ closed the channel of queue {queue!r}: {text}"


def _why_ended(channel: AbstractChannel) -> Exception:
    if not channel.is_closed:
        return ConnectionLost("RabbitMQ cancelled the consumer (was the queue deleted?)")
    closing = channel.closing
    error = None if closing.cancelled() else closing.exception()
    if isinstance(error, library.ChannelClosed):
        return error
    return ConnectionLost("the connection to RabbitMQ was lost")
