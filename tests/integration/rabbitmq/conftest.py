"""A vhost with a queue, and clients of it that reach the broker directly or through a proxy."""

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
