"""Receiving and waiting in tests, always with a limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from amqp_agents.brokers.base import Broker, Lease, Publishing
from amqp_agents.protocol.properties import Properties

LIMIT_SECONDS = 15.0


class Arrivals:
    """Takes over deliveries in the order in which they come: the `on_delivery` of a test."""

    def __init__(self, broker: Broker) -> None:
        self.times: list[float] = []
        self._clock = broker.clock
        self._leases: asyncio.Queue[Lease] = asyncio.Queue()

    def __call__(self, lease: Lease) -> None:
        self.times.append(self._clock.time())
        self._leases.put_nowait(lease)

    @property
    def waiting(self) -> int:
        """How many arrived that the test has not looked at."""
        return self._leases.qsize()

    async def next(self) -> Lease:
        """The next delivery, unsettled."""
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self._leases.get()

    async def some(self, count: int) -> list[Lease]:
        """The next deliveries, unsettled."""
        return [await self.next() for _ in range(count)]

    async def bodies(self, count: int) -> list[str]:
        """What the next deliveries say, each acknowledged."""
        read = []
        for _ in range(count):
            lease = await self.next()
            assert await lease.ack()
            read.append(body(lease))
        return read


def body(lease: Lease) -> str:
    """What a delivery says."""
    return lease.delivery.body.decode()


async def send(broker: Broker, exchange: str, routing_key: str, text: str, **options: Any) -> None:
    """Publish one message; options are properties, or `mandatory`."""
    mandatory = options.pop("mandatory", True)
    publishing = Publishing(
        exchange, routing_key, text.encode(), Properties(**options), mandatory=mandatory
    )
    await broker.publish(publishing, timeout_seconds=LIMIT_SECONDS)


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask again and again, since nobody signals it; fails naming `what` never came."""
    asked = 0
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not await holds():
                asked += 1
                await asyncio.sleep(min(0.2, 0.01 * asked))
    except TimeoutError:
        raise AssertionError(f"not within {LIMIT_SECONDS:g} s: {what}") from None


async def until_depth(broker: Broker, queue: str, depth: int | None) -> None:
    """Return once so many messages wait in the queue."""

    async def reached() -> bool:
        return await broker.depth(queue) == depth

    await until(reached, f"depth {depth} of {queue}")
