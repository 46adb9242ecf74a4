"""What the integration suites share."""

import os
from collections.abc import Iterator

import pytest

from tests.nodes.endpoint import Endpoint
from tests.nodes.node import Node
from tests.nodes.obtain import server
from tests.nodes.place import NodeUnavailable


@pytest.fixture(scope="session")
def node_version() -> str:
    """Which RabbitMQ a test starts when it needs a node of its own to break.

    Where none can be had, CI fails and others skip.
    """
    wanted = os.environ.get("AMQP_AGENTS_TEST_VERSION", "system")
    try:
        server(wanted)
    except NodeUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return wanted


@pytest.fixture
def app_url(rabbitmq: Endpoint, vhost_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A vhost of the test's own, for apps that read their settings from the environment."""
    monkeypatch.setenv("AMQP_AGENTS_MANAGEMENT_URL", rabbitmq.management_url)
    return vhost_url


@pytest.fixture(scope="session")
def shared_node(node_version: str) -> Iterator[Node]:
    with Node(node_version) as node:
        yield node


@pytest.fixture
def node(shared_node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A running node that the test may kill and restart; the next test finds it running."""
    if not shared_node.running:
        shared_node.start()
    monkeypatch.setenv("AMQP_AGENTS_MANAGEMENT_URL", shared_node.management_url)
    return shared_node
