"""RabbitMQ in a container by testcontainers, for machines where a Docker daemon answers."""

import http.client
import importlib
import importlib.util
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.nodes.endpoint import Endpoint
from tests.nodes.management import Management
from tests.nodes.place import NodeUnavailable

_PING_LIMIT_SECONDS = 3.0
_START_LIMIT_SECONDS = 120.0
_DEFAULT_SERIES = "4.0"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What to run; nothing of the host's environment enters, where a RABBITMQ_NODE_PORT may be."""

    image: str
    ports: tuple[int, ...] = (5672, 15672)
    environment: Mapping[str, str] = field(default_factory=dict)


def container_spec(version: str = "system") -> ContainerSpec:
    """The container of a version; "system" means the series the project is built against.

    >>> container_spec("3.10").image
    'rabbitmq:3.10-management'
    >>> container_spec("system").image
    'rabbitmq:4.0-management'
    """
    series = _DEFAULT_SERIES if version == "system" else version
    return ContainerSpec(image=f"rabbitmq:{series}-management")


def refusal(environment: Mapping[str, str], *, has_library: bool | None = None) -> str | None:
    """Why Docker cannot be used, in words; None when it can."""
    if not any(_ping(address) for address in daemon_addresses(environment)):
        return "no Docker daemon answers"
    if has_library is None:
        has_library = importlib.util.find_spec("testcontainers") is not None
    if not has_library:
        return "a Docker daemon answers, but the Python package testcontainers is not installed"
    return None


def daemon_addresses(environment: Mapping[str, str]) -> list[str]:
    """Where a daemon may listen: DOCKER_HOST alone when it is set, else the usual sockets."""
    chosen = environment.get("DOCKER_HOST")
    if chosen:
        return [chosen]
    home = Path(environment.get("HOME", "/"))
    return ["unix:///var/run/docker.sock", f"unix://{home / '.docker/run/docker.sock'}"]


def start(spec: ContainerSpec) -> Endpoint:
    """Run the container and wait until its broker serves.

    Raises: NodeUnavailable when the image cannot be run or does not come up.
    """
    try:
        endpoint = _run(spec)
    except _errors() as error:
        raise NodeUnavailable(f"Docker could not run {spec.image}: {error}") from error
    if not _serves(endpoint.management):
        endpoint.stop()
        raise NodeUnavailable(f"{spec.image} did not serve within {_START_LIMIT_SECONDS:.0f} s")
    return endpoint


def _run(spec: ContainerSpec) -> Endpoint:
    module: Any = importlib.import_module("testcontainers.core.container")
    container = module.DockerContainer(spec.image).with_exposed_ports(*spec.ports)
    for name, value in spec.environment.items():
        container.with_env(name, value)
    container.start()
    host = container.get_container_host_ip()
    amqp, management = (container.get_exposed_port(port) for port in spec.ports)
    return Endpoint(
        url=f"amqp://guest:guest@{host}:{amqp}/",
        management_url=f"http://{host}:{management}",
        stop=container.stop,
        origin=f"Docker container {spec.image}",
    )


def _errors() -> tuple[type[BaseException], ...]:
    """What the Docker client raises; testcontainers' own errors are RuntimeErrors and OSErrors."""
    try:
        module: Any = importlib.import_module("docker.errors")
    except ImportError:
        return (OSError, RuntimeError)
    return (OSError, RuntimeError, module.DockerException)


def _serves(management: Management) -> bool:
    until = time.monotonic() + _START_LIMIT_SECONDS
    while time.monotonic() < until:
        try:
            management.call("GET", "overview")
        except (OSError, RuntimeError, http.client.HTTPException):
            time.sleep(0.25)
        else:
            return True
    return False


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PING_LIMIT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ping(address: str) -> bool:
    """Whether a daemon answers GET /_ping; an address by ssh or TLS counts as none."""
    parts = urlsplit(address)
    connection: http.client.HTTPConnection
    if parts.scheme == "unix":
        connection = _UnixConnection(parts.path)
    elif parts.scheme == "tcp" and parts.hostname and not os.environ.get("DOCKER_TLS_VERIFY"):
        connection = http.client.HTTPConnection(
            parts.hostname, parts.port or 2375, timeout=_PING_LIMIT_SECONDS
        )
    else:
        return False
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
