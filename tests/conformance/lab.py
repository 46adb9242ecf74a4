"""One lab for each implementation of `Broker`, and what the implementation can do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from amqp_agents.brokers.base import Broker
from amqp_agents.brokers.memory import MemoryBroker, Vhost
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.clock import ManualClock
from amqp_agents.config import Settings
from tests.nodes.endpoint import Endpoint
from tests.nodes.proxy import Proxy

CONNECT_SECONDS = 10.0


class Feature(StrEnum):
    """What not every broker can do."""

    STRICT_PRIORITIES = "quorum queues deliver by priority"
    PRIORITY_CLASSES = "quorum queues prefer urgent messages"
    FREE_RELEASE = "a released delivery does not count as failed"


SINCE = {
    Feature.PRIORITY_CLASSES: (4, 0),
    Feature.STRICT_PRIORITIES: (4, 3),
    Feature.FREE_RELEASE: (4, 3),
}


def features_of(version: tuple[int, int]) -> frozenset[Feature]:
    """What this version of RabbitMQ, or a broker that imitates it, can do."""
    return frozenset(feature for feature, since in SINCE.items() if version >= since)


class Way(Protocol):
    """The way between one client and its broker, which a test may break."""

    def swallow(self) -> None:
        """Take every message and let no answer through."""

    def lose(self) -> None:
        """Lose the connection, and let none be made."""

    def restore(self) -> None:
        """Let everything through again."""


class Lab(Protocol):
    """One kind of broker under test: clients of one empty vhost."""

    @property
    def features(self) -> frozenset[Feature]: ...

    async def connect(self) -> Broker:
        """A further client of the vhost."""

    def breakable(self) -> Any:
        """A context with a further client and its `Way`."""

    async def delete_queue(self, name: str) -> None:
        """What an operator does behind our back."""

    async def close(self) -> None: ...


class MemoryLab:
    """Clients of one vhost in memory, on a clock that can be moved."""

    features = features_of(MemoryBroker.version)

    def __init__(self) -> None:
        self._vhost = Vhost(ManualClock())
        self._brokers: list[MemoryBroker] = []

    async def connect(self) -> MemoryBroker:
        broker = MemoryBroker(vhost=self._vhost)
        await broker.connect(timeout_seconds=CONNECT_SECONDS)
        self._brokers.append(broker)
        return broker

    @asynccontextmanager
    async def breakable(self) -> AsyncIterator[tuple[Broker, Way]]:
        broker = await self.connect()
        yield broker, _MemoryWay(broker)

    async def delete_queue(self, name: str) -> None:
        self._vhost.delete_queue(name)

    async def close(self) -> None:
        for broker in self._brokers:
            await broker.close()


class _MemoryWay:
    def __init__(self, broker: MemoryBroker) -> None:
        self._faults = broker.faults

    def swallow(self) -> None:
        self._faults.lose(times=1_000_000)

    def lose(self) -> None:
        self._faults.disconnect()

    def restore(self) -> None:
        self._faults.reconnect()


class RabbitMQLab:
    """Clients of one vhost of a real RabbitMQ."""

    def __init__(self, endpoint: Endpoint, url: str, version: tuple[int, int]) -> None:
        self.features = features_of(version)
        self._endpoint, self._url = endpoint, url
        self._brokers: list[RabbitMQBroker] = []

    async def connect(self, url: str | None = None) -> RabbitMQBroker:
        settings = Settings(url=url or self._url, management_url=self._management_url())
        broker = RabbitMQBroker(settings, name="conformance")
        self._brokers.append(broker)
        await broker.connect(timeout_seconds=CONNECT_SECONDS)
        return broker

    @asynccontextmanager
    async def breakable(self) -> AsyncIterator[tuple[Broker, Way]]:
        async with Proxy(urlsplit(self._url).port or 5672) as proxy:
            broker = await self.connect(proxy.url(self._url))
            try:
                yield broker, _ProxyWay(proxy)
            finally:
                proxy.heal()
                await broker.close()

    async def delete_queue(self, name: str) -> None:
        vhost = unquote(urlsplit(self._url).path[1:])
        path = f"queues/{quote(vhost, safe='')}/{quote(name, safe='')}"
        await asyncio.to_thread(self._endpoint.management.call, "DELETE", path)

    async def close(self) -> None:
        await asyncio.gather(*(broker.close() for broker in self._brokers))

    def _management_url(self) -> str:
        return self._endpoint.management_url


class _ProxyWay:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def swallow(self) -> None:
        self._proxy.black_hole()

    def lose(self) -> None:
        self._proxy.refuse()
        self._proxy.reset()

    def restore(self) -> None:
        self._proxy.heal()
