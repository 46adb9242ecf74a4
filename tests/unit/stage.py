"""Agents on the memory broker while time stands still, and all a test wants to look at."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pydantic import BaseModel

from amqp_agents.agent import Agent
from amqp_agents.app import AgentApp
from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.client import Client
from amqp_agents.clock import ManualClock
from amqp_agents.config import Settings
from amqp_agents.context import Target
from amqp_agents.lifecycle import Serving
from amqp_agents.observability import Entry
from amqp_agents.pipeline import Delivery, Middleware
from amqp_agents.protocol import AgentMessage, encode
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.names import DIRECT, dead_letter_queue

LIMIT_SECONDS = 5.0
DEFAULTS = Settings()

T = TypeVar("T")


class Draft(BaseModel):
    """What the agents of these tests are asked."""

    text: str = ""


class Review(BaseModel):
    """What they answer."""

    risk: str = "low"


class Recorder:
    """A journal that wakes whoever waits for its next entry."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._changed = asyncio.Event()

    def record(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._changed.set()

    def what(self, by: str) -> list[str]:
        """What one agent did, in order."""
        return [entry.what for entry in self.entries if entry.by == by]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once it holds, asked again at each entry."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class Stage:
    """One app that runs, a client of it, and the broker between them."""

    def __init__(
        self, app: AgentApp, broker: MemoryBroker, serving: Serving, client: Client
    ) -> None:
        self.app, self.broker, self.serving, self.client = app, broker, serving, client
        self.clock, self.faults = broker.clock, broker.faults

    @property
    def journal(self) -> Recorder:
        """What happened to every message."""
        journal = self.app.telemetry.journal
        assert isinstance(journal, Recorder)
        return journal

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything that is due happen."""
        await self.clock.advance(seconds)

    async def ask(self, target: Any, payload: Any, *, during: float = 0.0, **options: Any) -> Any:
        """Ask an agent while so much time passes, and return its answer."""
        call = asyncio.create_task(self.client.request(target, payload, **options))
        await self.advance(during)
        return await within(call)

    async def put(
        self, what: AgentMessage | bytes, agent: str, *, reply_to: str | None = None, **headers: Any
    ) -> None:
        """Publish to an agent's inbox as a sender would that does not use this package."""
        properties = Properties(content_type="application/json", reply_to=reply_to)
        if isinstance(what, AgentMessage):
            body, properties = encode(what, now=self.clock.time())
        else:
            body = what
        headers = {**properties.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        copy = Properties(
            content_type=properties.content_type, reply_to=properties.reply_to, headers=headers
        )
        await self.broker.publish(Publishing(DIRECT, agent, body, copy), timeout_seconds=1.0)
        await self.advance(0)

    async def dead_letters(self, agent: str) -> list[Delivery]:
        """What waits in the agent's dead-letter queue."""
        return await self.waiting(dead_letter_queue(agent))

    async def waiting(self, queue: str) -> list[Delivery]:
        """What waits in a queue, looked at and left there."""
        browser = await self.broker.browse(queue)
        found = []
        while (lease := await browser.get()) is not None:
            found.append(lease.delivery)
        await browser.close()
        return found

    def counted(self, metric: str, *labels: str) -> float:
        """The value of one of the app's counters or gauges."""
        family = getattr(self.app.telemetry.metrics, metric)
        child = family.labels(*labels) if labels else family
        value: float = child._value.get()
        return value


@asynccontextmanager
async def on_stage(
    *agents: Agent | Target[Any, Any],
    middleware: Sequence[Middleware] = (),
    warm: bool = True,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """Run the agents on a memory broker whose clock only a test moves.

    `warm` ones take as much at once as they may, as if each had handled something before.
    """
    broker = MemoryBroker(clock=ManualClock(frozen=True))
    app = AgentApp(agents, middleware=middleware, journal=Recorder())
    options = DEFAULTS.model_copy(update=settings)
    await broker.apply(app.topology())
    serving = app.serving(broker, options)
    await serving.start()
    if warm:
        for consumer in serving.consumers:
            consumer.intake.proven()
        await broker.clock.advance(0)
    client = Client(broker, settings=options, telemetry=app.telemetry)
    await client.open()
    try:
        yield Stage(app, broker, serving, client)
    finally:
        await client.close()
        await serving.drain(0.0)
        await broker.close()


async def within(awaitable: Awaitable[T], seconds: float = LIMIT_SECONDS) -> T:
    """Await something that must happen, for at most so long in real time."""
    async with asyncio.timeout(seconds):
        return await awaitable


def header(delivery: Delivery, name: str) -> Any:
    """One header of a delivery, None if it is absent."""
    return delivery.properties.headers.get(name)
