"""Which RabbitMQ the tests get: a given one, else a container, else a private node."""

import socket
from collections.abc import Iterator

import pytest

from tests.nodes import choose
from tests.nodes.endpoint import Endpoint
from tests.nodes.place import NodeUnavailable
from tests.nodes.ports import free_port


def endpoint(origin: str) -> Endpoint:
    return Endpoint("amqp://h/", "http://h:15672", lambda: None, origin)


def by_docker(version: str) -> Endpoint:
    return endpoint(f"docker {version}")


def by_node(version: str) -> Endpoint:
    return endpoint(f"node {version}")


def unavailable(version: str) -> Endpoint:
    raise NodeUnavailable(f"no {version} here")


@pytest.fixture
def listening_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_given_url_is_taken_before_anything_is_started(listening_port: int) -> None:
    url = f"amqp://me:secret@127.0.0.1:{listening_port}/"
    environment = {choose.URL: url, choose.MANAGEMENT_URL: "http://127.0.0.1:999"}
    found = choose.obtain_broker(environment)
    assert (found.url, found.management_url) == (url, "http://127.0.0.1:999")
    assert (found.management.user, found.management.password) == ("me", "secret")
    assert "secret" not in found.origin


def test_the_management_api_of_a_given_url_is_looked_for_at_its_usual_port(
    listening_port: int,
) -> None:
    found = choose.obtain_broker({choose.URL: f"amqp://127.0.0.1:{listening_port}"})
    assert found.management_url == "http://127.0.0.1:15672"


def test_a_given_url_where_nothing_answers_is_an_error_and_nothing_else_is_tried() -> None:
    environment = {choose.URL: f"amqp://me:secret@127.0.0.1:{free_port()}/"}
    with pytest.raises(NodeUnavailable, match="nothing answers: start that broker") as caught:
        choose.obtain_broker(environment)
    assert "secret" not in str(caught.value)


def test_docker_comes_before_a_private_node() -> None:
    found = choose.started("4.0", docker_refusal=None, by_docker=by_docker, by_node=by_node)
    assert found.origin == "docker 4.0"


def test_without_docker_it_is_a_private_node_of_the_wanted_version() -> None:
    found = choose.started("3.10", docker_refusal="none", by_docker=by_docker, by_node=by_node)
    assert found.origin == "node 3.10"


def test_a_container_that_cannot_run_gives_way_to_a_private_node() -> None:
    found = choose.started("4.0", docker_refusal=None, by_docker=unavailable, by_node=by_node)
    assert found.origin == "node 4.0"


def test_when_nothing_works_the_error_names_every_way() -> None:
    with pytest.raises(NodeUnavailable, match=r"no 4\.0 here \(no Docker daemon\).*TEST_URL"):
        choose.started(
            "4.0", docker_refusal="no Docker daemon", by_docker=by_docker, by_node=unavailable
        )
