"""A broker for one command, and where it is, without any password."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import typer
from pydantic import SecretStr

from amqp_agents.brokers.management import Management
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.brokers.rabbitmq.address import management_url, parse_address
from amqp_agents.config import Settings

T = TypeVar("T")

NAME = "cli"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Where RabbitMQ is: amqp://user:password@host:port/vhost. "
        "Better in the environment as AMQP_AGENTS_URL, where no process list shows it.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end; Ctrl+C cancels it in good order."""
    return asyncio.run(work)


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[RabbitMQBroker]:
    """Yield a connected broker. Raises: BrokerConnectionError, ConfigurationError."""
    broker = RabbitMQBroker(settings, name=NAME)
    try:
        await broker.connect(timeout_seconds=settings.connect_timeout_seconds)
        yield broker
    finally:
        await broker.close()


def management_of(settings: Settings) -> Management:
    """Return the management API that belongs to the broker, not yet asked for anything."""
    address = parse_address(settings.url)
    return Management(
        settings.management_url or SecretStr(management_url(address)),
        user=address.user or "guest",
        password=address.password,
        vhost=address.vhost,
    )


def whereabouts(settings: Settings) -> dict[str, str]:
    """Return host, vhost and user; what may be shown of a URL."""
    address = parse_address(settings.url)
    return {"hosts": address.hosts, "vhost": address.vhost, "user": address.user or "(certificate)"}


def version_text(version: tuple[int, int, int]) -> str:
    """Return a version as people write it.

    >>> version_text((3, 10, 8))
    '3.10.8'
    """
    return ".".join(map(str, version))
