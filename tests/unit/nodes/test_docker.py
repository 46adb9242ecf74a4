"""When and how RabbitMQ is run in a container; no engine is needed to check that."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import BaseServer, UnixStreamServer
from types import ModuleType
from typing import ClassVar, Self

import pytest

from tests.nodes import docker
from tests.nodes.place import NodeUnavailable


class Answer(BaseHTTPRequestHandler):
    """Answers every GET as a Docker daemon or a management API that is up."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        return "unix"


def serving(server: BaseServer) -> Iterator[BaseServer]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "docker.sock")
    for _ in serving(UnixStreamServer(path, Answer)):
        yield f"unix://{path}"


@pytest.fixture
def management_port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Answer)
    for _ in serving(server):
        yield server.server_port


class FakeContainer:
    """Records what testcontainers' DockerContainer is asked for."""

    started: ClassVar[list[Self]] = []
    ports: ClassVar[dict[int, int]] = {}
    refuses = False

    def __init__(self, image: str) -> None:
        self.image = image
        self.exposed: tuple[int, ...] = ()
        self.env: dict[str, str] = {}
        self.stopped = False

    def with_exposed_ports(self, *ports: int) -> Self:
        self.exposed = ports
        return self

    def with_env(self, name: str, value: str) -> Self:
        self.env[name] = value
        return self

    def start(self) -> Self:
        if self.refuses:
            raise RuntimeError("no such image")
        self.started.append(self)
        return self

    def stop(self) -> None:
        self.stopped = True

    def get_container_host_ip(self) -> str:
        return "127.0.0.1"

    def get_exposed_port(self, port: int) -> int:
        return self.ports[port]


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch, management_port: int) -> type[FakeContainer]:
    class Container(FakeContainer):
        started: ClassVar[list[Self]] = []
        ports: ClassVar[dict[int, int]] = {5672: 40000, 15672: management_port}

    module = ModuleType("testcontainers.core.container")
    vars(module)["DockerContainer"] = Container
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Container


def test_a_daemon_that_answers_is_used(daemon: str) -> None:
    assert docker.refusal({"DOCKER_HOST": daemon}, has_library=True) is None


def test_without_a_daemon_docker_is_refused_even_when_its_client_is_installed(
    tmp_path: Path,
) -> None:
    environment = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    assert docker.refusal(environment, has_library=True) == "no Docker daemon answers"


def test_a_daemon_without_testcontainers_says_what_to_install(daemon: str) -> None:
    said = docker.refusal({"DOCKER_HOST": daemon}, has_library=False)
    assert said is not None
    assert "testcontainers is not installed" in said


@pytest.mark.parametrize("address", ["ssh://somewhere", "tcp://127.0.0.1:1", "nonsense"])
def test_an_address_that_cannot_be_asked_counts_as_no_daemon(address: str) -> None:
    assert docker.refusal({"DOCKER_HOST": address}, has_library=True) is not None


def test_docker_host_takes_the_place_of_the_usual_sockets() -> None:
    assert docker.daemon_addresses({"DOCKER_HOST": "tcp://h:1"}) == ["tcp://h:1"]
    assert docker.daemon_addresses({"HOME": "/home/me"}) == [
        "unix:///var/run/docker.sock",
        "unix:///home/me/.docker/run/docker.sock",
    ]


def test_the_container_has_the_management_plugin_and_both_ports() -> None:
    spec = docker.container_spec("4.0")
    assert (spec.image, spec.ports) == ("rabbitmq:4.0-management", (5672, 15672))


def test_rabbitmq_variables_of_the_host_do_not_reach_the_container(
    monkeypatch: pytest.MonkeyPatch, container: type[FakeContainer]
) -> None:
    monkeypatch.setenv("RABBITMQ_NODE_PORT", "1234")
    docker.start(docker.container_spec())
    assert container.started[0].env == {}


def test_a_started_container_is_an_endpoint_that_stops_it(
    container: type[FakeContainer], management_port: int
) -> None:
    endpoint = docker.start(docker.container_spec())
    assert endpoint.url == "amqp://guest:guest@127.0.0.1:40000/"
    assert endpoint.management_url == f"http://127.0.0.1:{management_port}"
    endpoint.stop()
    assert container.started[0].stopped


def test_an_image_that_cannot_be_run_is_reported_as_unavailable(
    container: type[FakeContainer],
) -> None:
    container.refuses = True
    with pytest.raises(NodeUnavailable, match=r"not run rabbitmq:4\.0-management: no such"):
        docker.start(docker.container_spec())
