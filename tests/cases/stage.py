"""Agents on a real RabbitMQ, a caller on connections of its own, and what was told meanwhile."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel

from amqp_agents import AgentApp, AgentMessage, Client, RabbitMQBroker, Settings
from amqp_agents.brokers.base import Lease, OnDelivery, Subscription
from amqp_agents.client import connect
from amqp_agents.lifecycle import Serving
from amqp_agents.observability import Entry
from amqp_agents.pipeline import Delivery, Middleware
from amqp_agents.protocol import encode
from amqp_agents.topology.names import dead_letter_queue, inbox
from tests.nodes.endpoint import Endpoint
from tests.nodes.rawpub import properties, publish_raw, short

LIMIT_SECONDS = 15.0
JSON = short(b"application/json")


class Work(BaseModel):
    """What the agents of the cases are asked."""

    n: int = 0


class Done(BaseModel):
    """What they answer."""

    n: int = 0


class Watched(RabbitMQBroker):
    """Keeps what is handed to consumers, and counts it by body."""

    def __init__(self, settings: Settings, *, name: str) -> None:
        super().__init__(settings, name=name)
        self.deliveries: Counter[bytes] = Counter()
        self.seen: list[Delivery] = []

    async def consume(self, queue: str, on_delivery: OnDelivery, *, prefetch: int) -> Subscription:
        def count(lease: Lease) -> None:
            self.deliveries[lease.delivery.body] += 1
            self.seen.append(lease.delivery)
            on_delivery(lease)

        return await super().consume(queue, count, prefetch=prefetch)

    @property
    def connections(self) -> int:
        """How many connections were made for publishing and consuming so far."""
        return self._publishing.epoch + self._consuming.epoch


class Told(logging.Handler):
    """Everything the package logged, in order."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Journal:
    """What happened to every message that could be read."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def record(self, entry: Entry) -> None:
        self.entries.append(entry)

    def count(self, what: str, message_id: str) -> int:
        """How often something happened to one message."""
        return sum((e.what, e.message.message_id) == (what, message_id) for e in self.entries)


@dataclass(frozen=True, slots=True)
class Place:
    """One vhost of one broker."""

    endpoint: Endpoint
    url: str

    @property
    def vhost(self) -> str:
        """Its name."""
        return unquote(urlsplit(self.url).path[1:])

    @property
    def port(self) -> int:
        """Where AMQP is spoken."""
        return urlsplit(self.url).port or 5672

    async def api(self, method: str, path: str, body: object = None) -> Any:
        """One call about this vhost: `path` is `queues/{}/agent.work`, {} stands for the vhost."""
        told = path.format(quote(self.vhost, safe=""))
        return await asyncio.to_thread(self.endpoint.management.call, method, told, body)

    async def version(self) -> tuple[int, int]:
        """Which RabbitMQ it is."""
        told = await self.api("GET", "overview")
        major, minor = told["rabbitmq_version"].split(".")[:2]
        return int(major), int(minor)

    def settings(self, **changes: Any) -> Settings:
        """Settings of a process that works here."""
        given = {"url": self.url, "management_url": self.endpoint.management_url}
        return Settings(**(given | changes))


class Stage:
    """One app that runs in a vhost; `caller` reaches it over connections of its own."""

    def __init__(self, place: Place, app: AgentApp, *, told: Told) -> None:
        self.place, self.app, self.told = place, app, told
        self.broker: Watched
        self.serving: Serving
        self.caller: Client

    @property
    def journal(self) -> Journal:
        """What happened to every message."""
        journal = self.app.telemetry.journal
        assert isinstance(journal, Journal)
        return journal

    def counted(self, name: str, **labels: str) -> float:
        """The value of one of the app's counters or gauges, 0 before its first use."""
        registry = self.app.telemetry.metrics.registry
        return registry.get_sample_value(f"amqp_agents_{name}", labels) or 0.0

    def events(self, name: str) -> list[dict[str, Any]]:
        """The fields of every log record of one event."""
        return [r.fields for r in self.told.records if getattr(r, "event", "") == name]  # type: ignore[attr-defined]

    async def put(self, agent: str, body: bytes, property_bytes: bytes | None = None) -> None:
        """Publish to the agent's inbox as a foreign client would."""
        props = properties(content_type=JSON) if property_bytes is None else property_bytes
        await publish_raw(self.place.url, inbox(agent).encode(), body, props)

    async def depth(self, queue: str) -> int | None:
        """How many messages are ready in a queue; None if there is none."""
        return await self.caller.broker.depth(queue)

    async def waiting(self, queue: str) -> list[Delivery]:
        """What waits in a queue, looked at and left there."""
        browser = await self.caller.broker.browse(queue)
        found = []
        while (lease := await browser.get()) is not None:
            found.append(lease.delivery)
        await browser.close()
        return found

    async def dead_letters(self, agent: str) -> list[Delivery]:
        """What the agent gave up."""
        return await self.waiting(dead_letter_queue(agent))

    async def start(self) -> None:
        """Consume."""
        self.serving = self.app.serving(self.broker, self.settings)
        await self.serving.start()

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Stop consuming; what is unsettled then is ready again."""
        await self.serving.drain(grace_seconds)

    settings: Settings


def message(agent: str, n: int = 0, **fields: Any) -> AgentMessage:
    """A normal message to an agent, as the package's own publisher writes it."""
    given = {"sender": "caller", "recipient": agent, "message_type": "direct", "payload": {"n": n}}
    return AgentMessage(**(given | fields))


def body_of(agent: str, n: int = 0, **fields: Any) -> tuple[bytes, str]:
    """The body of a normal message, and its id."""
    written = message(agent, n, **fields)
    return encode(written, now=written.timestamp.timestamp())[0], written.message_id


@asynccontextmanager
async def on_stage(
    place: Place,
    *agents: Any,
    worker_url: str | None = None,
    middleware: Sequence[Middleware] = (),
    start: bool = True,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """Run agents in a vhost; `worker_url` is their way to it, where the caller's is another."""
    app = AgentApp(agents, middleware=middleware, journal=Journal())
    told = Told()
    logger = logging.getLogger("amqp_agents")
    logger.addHandler(told)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    stage = Stage(place, app, told=told)
    stage.settings = place.settings(**({"url": worker_url or place.url} | settings))
    stage.broker = Watched(stage.settings, name="worker")
    try:
        async with connect_caller(place, app) as caller:
            stage.caller = caller
            await stage.broker.connect(timeout_seconds=10)
            stage.serving = app.serving(stage.broker, stage.settings)
            if start:
                await stage.serving.start()
            try:
                yield stage
            finally:
                await stage.stop()
                await stage.broker.close()
    finally:
        logger.setLevel(level)
        logger.removeHandler(told)


@asynccontextmanager
async def connect_caller(place: Place, app: AgentApp) -> AsyncIterator[Client]:
    """Declare what the app needs, and connect a client beside it."""
    admin = RabbitMQBroker(place.settings(), name="admin")
    await admin.connect(timeout_seconds=10)
    try:
        await admin.apply(app.topology())
    finally:
        await admin.close()
    async with connect(name="caller", settings=place.settings()) as caller:
        yield caller


async def until(
    holds: Callable[[], bool] | Callable[[], Awaitable[bool]],
    what: str,
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Ask again and again, since nobody signals it; fails naming `what` never came."""
    try:
        async with asyncio.timeout(limit_seconds):
            while True:
                answer = holds()
                if answer if isinstance(answer, bool) else await answer:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {limit_seconds:g} s: {what}") from None
