"""The RabbitMQ that the tests share: a given one, else a container, else a private node."""

import os
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from tests.nodes import docker
from tests.nodes.endpoint import Endpoint
from tests.nodes.node import Node
from tests.nodes.place import NodeUnavailable
from tests.nodes.ports import listens

URL = "AMQP_AGENTS_TEST_URL"
MANAGEMENT_URL = "AMQP_AGENTS_TEST_MANAGEMENT_URL"
VERSION = "AMQP_AGENTS_TEST_VERSION"

Starter = Callable[[str], Endpoint]


def obtain_broker(environment: Mapping[str, str] = os.environ) -> Endpoint:
    """The broker for tests that only use one; a test that breaks a broker takes its own `Node`.

    Raises: NodeUnavailable with one sentence that says what to install.
    """
    if environment.get(URL):
        return given(environment)
    return started(
        environment.get(VERSION) or "system",
        docker_refusal=docker.refusal(environment),
        by_docker=_by_docker,
        by_node=_by_node,
    )


def given(environment: Mapping[str, str]) -> Endpoint:
    """The broker that the environment names; its management API is at 15672 unless named too.

    Raises: NodeUnavailable when nothing answers there.
    """
    url = environment[URL]
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or _default_port(parts.scheme)
    if not listens(port, host):
        raise NodeUnavailable(
            f"{URL} names {host}:{port}, where nothing answers: start that broker, or unset the "
            f"variable to have one started"
        )
    return Endpoint(
        url=url,
        management_url=environment.get(MANAGEMENT_URL) or f"http://{host}:15672",
        stop=_leave_running,
        origin=f"{URL} ({host}:{port})",
    )


def started(
    version: str, *, docker_refusal: str | None, by_docker: Starter, by_node: Starter
) -> Endpoint:
    """A broker of `version` started for the tests, by Docker unless that is refused or fails.

    Raises: NodeUnavailable naming every way that was tried and what would mend it.
    """
    if docker_refusal is None:
        try:
            return by_docker(version)
        except NodeUnavailable as error:
            docker_refusal = str(error)
    try:
        return by_node(version)
    except NodeUnavailable as error:
        raise NodeUnavailable(f"{error} ({docker_refusal}); or name a broker in {URL}") from error


def _by_docker(version: str) -> Endpoint:
    return docker.start(docker.container_spec(version))


def _by_node(version: str) -> Endpoint:
    node = Node(version)
    node.__enter__()
    return Endpoint(
        url=node.url,
        management_url=node.management_url,
        stop=node.close,
        origin=f"private node of RabbitMQ {node.version}",
    )


def _default_port(scheme: str) -> int:
    return 5671 if scheme == "amqps" else 5672


def _leave_running() -> None:
    """A broker that was given is not ours to stop."""
