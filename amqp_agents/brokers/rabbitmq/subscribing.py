"""Subscriptions: a restore loop for each consumer, so that one fault stops one queue."""

import asyncio
import logging

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel

from amqp_agents.brokers.base import OnDelivery, SubscriptionState
from amqp_agents.brokers.rabbitmq.consuming import ChannelConsumer, ConsumerOptions, consume_failure
from amqp_agents.brokers.rabbitmq.faults import UNEXPECTED, backoff_seconds, tell_if_it_dies
from amqp_agents.brokers.rabbitmq.leases import Tally
from amqp_agents.brokers.rabbitmq.link import Link
from amqp_agents.brokers.rabbitmq.session import Session
from amqp_agents.errors import AgentError, BrokerError
from amqp_agents.observability import Event, log_event

log = logging.getLogger(__name__)

BACKOFF_SECONDS, BACKOFF_CAP_SECONDS = 0.1, 5.0


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
        self._beginning = asyncio.Lock()  # held while the broker is asked for a consumer
        self._consumers: list[ChannelConsumer] = []  # the newest last
        self._closed = False
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
        return self._consumers[-1].channel if self._state is SubscriptionState.UP else None

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
        for consumer in self._consumers[-1:]:
            await consumer.cancel()

    async def close(self) -> None:
        self._closed = True
        await self.cancel()
        consumers, self._consumers = self._consumers, []
        await asyncio.gather(*(consumer.holding.close() for consumer in consumers))

    async def _restore(self) -> None:
        while True:
            try:
                await self._consume(await self._link.session())
            except library.AMQPChannelError as error:
                self._fail(consume_failure(error, self._options.queue))
            except AgentError as error:
                self._fail(str(error))
            except UNEXPECTED as error:
                what = f"{type(error).__name__}: {error}".removesuffix(": ")
                self._fail(f"queue {self._options.queue!r} is not consumed: {what}", error)
            pause = backoff_seconds(self._failures, BACKOFF_SECONDS, BACKOFF_CAP_SECONDS)
            self._failures += 1
            await asyncio.sleep(pause)

    async def _consume(self, session: Session) -> None:
        """Consume until the broker takes the consumer or the channel away; always raises."""
        channel = await session.open_channel(confirms=self._options.confirms)
        consumer = ChannelConsumer(channel, self._options, self._on_delivery, tally=self._tally)
        self._consumers = [each for each in self._consumers if not each.channel.is_closed]
        self._consumers.append(consumer)
        try:
            async with self._beginning:
                await consumer.begin(name=self._link.name, epoch=session.epoch)
            if not consumer.ended.is_set():
                self._succeed(session.epoch)
            await consumer.ended.wait()
            raise consumer.why_ended()
        except (library.AMQPChannelError, AgentError):
            # After a cancel by the broker, what was delivered can still be settled.
            consumer.holding.retire()
            raise
        except UNEXPECTED:
            await consumer.cancel()  # it may live on: nothing new may come by its channel
            consumer.holding.retire()
            raise

    def _succeed(self, epoch: int) -> None:
        if self._state is not SubscriptionState.CANCELLED:
            self._state, self._failure, self._failures = SubscriptionState.UP, None, 0
            self._epoch = epoch
            self._up.set()
            log_event(log, Event.CONSUMING, queue=self._options.queue, epoch=epoch)

    def _fail(self, reason: str, unexpected: BaseException | None = None) -> None:
        if self._state is SubscriptionState.CANCELLED:
            return
        self._up.clear()
        if (self._state, self._failure) != (SubscriptionState.FAILING, reason):
            queue = self._options.queue
            log_event(log, Event.CONSUMER_FAILING, error=unexpected, queue=queue, reason=reason)
        self._state, self._failure = SubscriptionState.FAILING, reason
