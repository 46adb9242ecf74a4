"""A vhost with a queue, and clients of it that reach the broker directly or through a proxy."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import pytest

from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.config import Settings
from amqp_agents.topology.model import Binding, Exchange, ExchangeKind, Queue, Topology
from tests.nodes.endpoint import Endpoint
from tests.nodes.proxy import Proxy

WORK = Topology(
    exchanges=(Exchange("work", ExchangeKind.DIRECT),),
    queues=(Queue("work"),),
    bindings=(Binding("work", "work", "work"),),
)

Configure = Callable[..., Settings]


class Account:
    """A user of the test's own, with rights in the test's vhost only."""

    def __init__(self, rabbitmq: Endpoint, vhost_url: str) -> None:
        self._call, self._parts = rabbitmq.management.call, urlsplit(vhost_url)
        self._vhost = self._parts.path[1:]
        self.name = f"user-{secrets.token_hex(6)}"

    async def put(self, password: str = "pw", *, tags: str = "") -> None:
        """Make the user, or change it."""
        user = {"password": password, "tags": tags}
        await asyncio.to_thread(self._call, "PUT", f"users/{self.name}", user)

    async def grant(self, *, configure: str = "", write: str = "", read: str = "") -> None:
        """Set what the user may do in the vhost; patterns, empty for nothing."""
        rights = {"configure": configure, "write": write, "read": read}
        path = f"permissions/{self._vhost}/{self.name}"
        await asyncio.to_thread(self._call, "PUT", path, rights)

    async def delete(self) -> None:
        await asyncio.to_thread(self._call, "DELETE", f"users/{self.name}")

    def url(self, port: int | None = None, *, password: str = "pw") -> str:
        """Where it logs in, with this password, by this port."""
        host, path = self._parts.hostname, self._parts.path
        return f"amqp://{self.name}:{password}@{host}:{port or self._parts.port}{path}"


@pytest.fixture
def configured(rabbitmq: Endpoint, vhost_url: str) -> Configure:
    """Settings for the test's vhost, with some of them changed."""

    def build(**changes: object) -> Settings:
        values = {"url": vhost_url, "management_url": rabbitmq.management_url}
        return Settings(**(values | changes))

    return build


@pytest.fixture
async def broker(configured: Configure) -> AsyncIterator[RabbitMQBroker]:
    """A connected client of a vhost in which the queue `work` takes key `work`."""
    broker = RabbitMQBroker(configured(), name="test")
    await broker.connect(timeout_seconds=10)
    await broker.apply(WORK)
    yield broker
    await broker.close()


@pytest.fixture
async def account(rabbitmq: Endpoint, vhost_url: str) -> AsyncIterator[Account]:
    """A user without any rights, deleted afterwards."""
    account = Account(rabbitmq, vhost_url)
    await account.put()
    yield account
    await account.delete()


@pytest.fixture
async def proxy(vhost_url: str) -> AsyncIterator[Proxy]:
    """The way a client takes that reaches the broker by `proxied`."""
    async with Proxy(urlsplit(vhost_url).port or 5672) as proxy:
        yield proxy


@pytest.fixture
async def proxied(
    proxy: Proxy, vhost_url: str, configured: Configure, broker: RabbitMQBroker
) -> AsyncIterator[RabbitMQBroker]:
    """A second client of the vhost, whose way the test may break."""
    settings = configured(url=proxy.url(vhost_url), heartbeat_seconds=5)
    proxied = RabbitMQBroker(settings, name="proxied")
    await proxied.connect(timeout_seconds=10)
    yield proxied
    proxy.heal()
    await proxied.close()
