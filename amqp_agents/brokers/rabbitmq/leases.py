"""Deliveries that are ours until they are settled, and the channels they came by."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel

from amqp_agents.brokers.rabbitmq.faults import ConnectionLost, library_faults
from amqp_agents.brokers.rabbitmq.session import close_channel
from amqp_agents.observability import Event, log_event
from amqp_agents.pipeline import Delivery

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0


@dataclass
class Tally:
    """What a broker counts about its consumers."""

    lost_settlements: int = 0


class Holding:
    """A channel with what came by it and is unsettled; settling is possible only there."""

    def __init__(self, channel: AbstractChannel, tally: Tally) -> None:
        self.channel = channel
        self._tally = tally
        self._unsettled = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    def lease(self, delivery: Delivery, tag: int) -> "RabbitMQLease":
        """Take over a delivery."""
        self._unsettled += 1
        return RabbitMQLease(delivery, tag, self)

    async def settle(self, call: Callable[[], Awaitable[None]], queue: str) -> bool:
        """Settle one delivery; False, and counted, if the broker cannot be told any more."""
        try:
            with library_faults():
                async with asyncio.timeout(SETTLE_SECONDS):
                    await call()
        except (ConnectionLost, TimeoutError, library.AMQPChannelError):
            self._tally.lost_settlements += 1
            log_event(log, Event.SETTLEMENT_LOST, queue=queue)
            return False
        finally:
            self._unsettled -= 1
            self._close_if_idle()
        return True

    def retire(self) -> None:
        """Close the channel once nothing on it is unsettled."""
        self._retired = True
        self._close_if_idle()

    async def close(self) -> None:
        """Close the channel now; the broker takes back what is unsettled."""
        await close_channel(self.channel)

    def _close_if_idle(self) -> None:
        if self._retired and self._unsettled == 0 and self._closing is None:
            self._closing = asyncio.create_task(close_channel(self.channel))


class RabbitMQLease:
    """A delivery that waits for its settlement; settling it a second time does nothing."""

    def __init__(self, delivery: Delivery, tag: int, holding: Holding) -> None:
        self.delivery = delivery
        self._tag, self._holding = tag, holding
        self._settled = False

    @property
    def lost(self) -> bool:
        return not self._settled and self._holding.channel.is_closed

    async def ack(self) -> bool:
        return await self._settle(lambda channel: channel.basic_ack(self._tag))

    async def reject(self) -> bool:
        return await self._settle(lambda channel: channel.basic_reject(self._tag, requeue=False))

    async def release(self) -> bool:
        return await self._settle(lambda channel: channel.basic_nack(self._tag, requeue=True))

    async def _settle(self, call: Callable[[AbstractChannel], Awaitable[None]]) -> bool:
        if self._settled:
            return False  # the broker closes a channel for a tag it does not know any more
        self._settled = True
        holding = self._holding
        return await holding.settle(lambda: call(holding.channel), self.delivery.queue)


class UnacknowledgedLease:
    """A delivery the broker forgot when it sent it; there is nothing to settle."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    @property
    def lost(self) -> bool:
        return False

    async def ack(self) -> bool:
        return True

    async def reject(self) -> bool:
        return True

    async def release(self) -> bool:
        return False
