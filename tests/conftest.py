"""The RabbitMQ that tests share, and a vhost of its own for each test."""

import os
from collections.abc import Iterator

import pytest

from tests.nodes.choose import obtain_broker
from tests.nodes.endpoint import Endpoint
from tests.nodes.place import NodeUnavailable

_ABSENT = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def rabbitmq(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """A running RabbitMQ; where there is none, CI fails and others skip."""
    stash = request.config.stash
    if _ABSENT not in stash:
        try:
            endpoint = obtain_broker()
        except NodeUnavailable as error:
            stash[_ABSENT] = str(error)
        else:
            yield endpoint
            endpoint.stop()
            return
    if _in_ci():
        pytest.fail(stash[_ABSENT], pytrace=False)
    pytest.skip(stash[_ABSENT])


@pytest.fixture
def vhost_url(rabbitmq: Endpoint) -> Iterator[str]:
    """The AMQP URL of a vhost that nobody else uses, deleted afterwards."""
    vhost = rabbitmq.create_vhost()
    yield rabbitmq.url_for(vhost)
    rabbitmq.delete_vhost(vhost)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say at the end, where everybody looks, that RabbitMQ was not tested."""
    if _ABSENT in config.stash:
        terminalreporter.section("RabbitMQ was NOT tested", sep="!", red=True, bold=True)
        terminalreporter.line(config.stash[_ABSENT])


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
