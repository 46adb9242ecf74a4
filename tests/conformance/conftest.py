"""Every test here runs once with each broker."""

from collections.abc import AsyncIterator

import pytest

from amqp_agents.brokers.base import Broker
from tests.conformance.lab import Lab, MemoryLab, RabbitMQLab
from tests.nodes.endpoint import Endpoint


@pytest.fixture(scope="session")
def rabbitmq_version(rabbitmq: Endpoint) -> tuple[int, int]:
    """Major and minor version of the RabbitMQ under test."""
    version = rabbitmq.management.call("GET", "overview")["rabbitmq_version"]
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """Each broker in turn, with a vhost of its own for the test."""
    if request.param == "memory":
        lab: MemoryLab | RabbitMQLab = MemoryLab()
    else:
        lab = RabbitMQLab(
            request.getfixturevalue("rabbitmq"),
            request.getfixturevalue("vhost_url"),
            request.getfixturevalue("rabbitmq_version"),
        )
    yield lab
    await lab.close()


@pytest.fixture
async def broker(lab: Lab) -> Broker:
    """A connected client of the lab's vhost."""
    return await lab.connect()
