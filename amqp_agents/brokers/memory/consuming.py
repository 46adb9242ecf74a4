"""The client's side of deliveries: leases, subscriptions and browsers."""

import asyncio
from itertools import count

from amqp_agents.brokers.base import OnDelivery, SubscriptionState
from amqp_agents.brokers.memory.messages import Message, delivery_of
from amqp_agents.brokers.memory.queues import MemoryQueue
from amqp_agents.brokers.memory.vhost import Vhost
from amqp_agents.errors import BrokerConnectionError, BrokerError, TopologyMissingError
from amqp_agents.pipeline import Delivery


class Holding:
    """What one consumer or browser holds unsettled."""

    def __init__(self) -> None:
        self._tags = count()
        self._held: dict[int, tuple[MemoryQueue, Message]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, tag: int) -> bool:
        return tag in self._held

    def lease(self, queue: MemoryQueue, message: Message) -> "MemoryLease":
        """Take a message over and return the right to settle it."""
        tag = next(self._tags)
        self._held[tag] = queue, message
        delivery = delivery_of(message, queue.declared.name, counts=queue.quorum)
        return MemoryLease(delivery, tag, self)

    def settle(self, tag: int) -> tuple[MemoryQueue, Message] | None:
        """Let go of one message; None if it is not held any more."""
        held = self._held.pop(tag, None)
        if held is not None:
            held[0].wake()  # there is room for another
        return held

    def lose(self) -> None:
        """Give everything back, as a server does for a channel that is gone."""
        held, self._held = self._held, {}
        for queue, message in held.values():
            queue.give_back(message, failed=True)


class MemoryLease:
    """A delivery of a `MemoryBroker`; settling it a second time does nothing."""

    def __init__(self, delivery: Delivery, tag: int, holding: Holding) -> None:
        self.delivery = delivery
        self._tag, self._holding = tag, holding
        self._settled = False

    @property
    def lost(self) -> bool:
        return not self._settled and self._tag not in self._holding

    async def ack(self) -> bool:
        return self._settle() is not None

    async def reject(self) -> bool:
        if (held := self._settle()) is None:
            return False
        queue, message = held
        queue.reject(message)
        return True

    async def release(self) -> bool:
        if (held := self._settle()) is None:
            return False
        queue, message = held
        queue.give_back(message, failed=False)
        return True

    def _settle(self) -> tuple[MemoryQueue, Message] | None:
        if self._settled:
            return None
        self._settled = True
        return self._holding.settle(self._tag)


class MemorySubscription:
    """Deliveries of one queue; waits for the queue while it does not exist."""

    def __init__(self, vhost: Vhost, queue: str, on_delivery: OnDelivery, *, prefetch: int) -> None:
        self._vhost, self._queue, self._prefetch = vhost, queue, prefetch
        self._on_delivery = on_delivery
        self._holding = Holding()
        self._up = asyncio.Event()
        self._cancelled = False
        self._failure: str | None = None
        self.restore()

    @property
    def state(self) -> SubscriptionState:
        if self._cancelled:
            return SubscriptionState.CANCELLED
        return SubscriptionState.FAILING if self._failure else SubscriptionState.UP

    @property
    def failure(self) -> str | None:
        return self._failure

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to lose."""
        return self._cancelled and not len(self._holding)

    @property
    def room(self) -> int:
        """How many more deliveries it takes now."""
        return 0 if self._cancelled else self._prefetch - len(self._holding)

    def receive(self, queue: MemoryQueue, message: Message) -> None:
        """Hand one message of the queue to who subscribed."""
        self._on_delivery(self._holding.lease(queue, message))

    def found(self, *, exists: bool) -> None:
        """Learn whether there is such a queue now."""
        self._failure = None if exists else f"queue not found: {self._queue}"
        if exists:
            self._up.set()
        else:
            self._up.clear()

    async def ready(self, timeout_seconds: float) -> None:
        try:
            async with self._vhost.clock.timeout(timeout_seconds):
                await self._up.wait()
        except TimeoutError:
            raise BrokerError(self._failure or f"{self._queue} was not consumed in time") from None
        if self._cancelled:
            raise BrokerError(f"the subscription of {self._queue} was cancelled")

    async def cancel(self) -> None:
        self._cancelled = True
        self._failure = None
        self._up.set()
        self._vhost.unsubscribe(self._queue, self)

    async def close(self) -> None:
        await self.cancel()
        self._holding.lose()

    def lose(self, failure: str) -> None:
        """Lose the connection: whatever is unsettled goes back to the queue."""
        self._vhost.unsubscribe(self._queue, self)
        self._holding.lose()
        if not self._cancelled:
            self._failure = failure
            self._up.clear()

    def restore(self) -> None:
        """Consume again."""
        if not self._cancelled:
            self._vhost.subscribe(self._queue, self)


class MemoryBrowser:
    """Looks at a queue; what it did not settle goes back when it is closed."""

    def __init__(self, vhost: Vhost, queue: str) -> None:
        self._vhost, self._queue = vhost, queue
        self._holding = Holding()
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to lose."""
        return self._closed

    async def get(self) -> MemoryLease | None:
        if self._closed:
            raise BrokerConnectionError(f"the browser of {self._queue} is closed")
        queue = self._vhost.queues.get(self._queue)
        if queue is None:
            raise TopologyMissingError([f"queue {self._queue}"], remedy="apply the topology first")
        message = queue.take()
        return None if message is None else self._holding.lease(queue, message)

    async def close(self) -> None:
        self.lose()

    def lose(self, failure: str = "") -> None:
        """Lose the connection, and with it the way to settle what was looked at."""
        self._closed = True
        self._holding.lose()

    def restore(self) -> None:
        """Nothing: a browser that lost its connection is over."""
