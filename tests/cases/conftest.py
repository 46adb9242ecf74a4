"""A vhost for each file of cases, and one for each test that needs its own."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from amqp_agents import RetryPolicy, agent
from tests.cases.checks import nothing_left
from tests.cases.stage import Done, Place, Stage, Work, on_stage
from tests.nodes.endpoint import Endpoint


@pytest.fixture(scope="module")
def shared_place(rabbitmq: Endpoint) -> Iterator[Place]:
    """A vhost that the tests of one file share."""
    vhost = rabbitmq.create_vhost()
    yield Place(rabbitmq, rabbitmq.url_for(vhost))
    rabbitmq.delete_vhost(vhost)


@pytest.fixture
def place(rabbitmq: Endpoint, vhost_url: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A vhost of the test's own, for processes of the test's environment too."""
    monkeypatch.setenv("AMQP_AGENTS_MANAGEMENT_URL", rabbitmq.management_url)
    return Place(rabbitmq, vhost_url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    """Two agents, one handler at a time each, for all tests of a file; nothing may be left."""

    @agent("work", concurrency=1)
    async def work(given: Work) -> Done:
        return Done(n=given.n)

    @agent("neighbour", concurrency=1)
    async def neighbour(given: Work) -> Done:
        return Done(n=given.n)

    @agent("failing", concurrency=1, retry=RetryPolicy(max_attempts=3, base_seconds=0))
    async def failing(given: Work) -> Done:
        raise ValueError("it always fails")

    async with on_stage(shared_place, work, neighbour, failing) as stage:
        yield stage
        await nothing_left(stage, "work", "neighbour", "failing")


@pytest.fixture(scope="session")
def node_version() -> str:
    """Which RabbitMQ a test starts when it needs a node of its own to break."""
    return os.environ.get("AMQP_AGENTS_TEST_VERSION", "system")
