"""The app: the agents of one process, their middleware, their lifespan."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from amqp_agents.agent import Agent, BoundHandler
from amqp_agents.brokers.base import Broker
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.client import Client, connect
from amqp_agents.config import Settings, load_settings
from amqp_agents.context import Target
from amqp_agents.errors import ConfigurationError, DuplicateAgentError
from amqp_agents.lifecycle import Lifespan, Serving, ensure_topology, serve
from amqp_agents.observability import Journal, Metrics, Telemetry
from amqp_agents.pipeline import Middleware
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.load import load_topology, merge
from amqp_agents.topology.model import Topology


class AgentApp:
    """A list of agents and what they share; nothing connects until it is run.

    `topology` names a YAML file that declares agents too: where both name one, a difference is
    an error. `lifespan` opens and closes what handlers need (a model client, a pool).

    Raises: ConfigurationError for anything that is no agent, DuplicateAgentError.
    """

    def __init__(
        self,
        agents: Sequence[Agent | Target[Any, Any]],
        *,
        middleware: Sequence[Middleware] = (),
        lifespan: Lifespan | None = None,
        topology: str | Path | None = None,
        journal: Journal | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.agents = unique_agents(agents)
        self.middleware, self.lifespan = tuple(middleware), lifespan
        self.telemetry = Telemetry(metrics=metrics, journal=journal)
        self._declared = Path(topology) if topology is not None else None

    def topology(self) -> Topology:
        """Return everything its agents need on a broker.

        Raises: TopologyConflictError where the YAML and the code differ.
        """
        specs = [agent.spec for agent in self.agents]
        if self._declared is not None:
            specs = list(merge(load_topology(self._declared), specs))
        return standard_topology(specs)

    @asynccontextmanager
    async def client(
        self, url: str | None = None, *, name: str = "client"
    ) -> AsyncIterator[Client]:
        """Connect to RabbitMQ and yield a client; the agents run elsewhere."""
        async with connect(url, name=name, telemetry=self.telemetry) as client:
            yield client

    @asynccontextmanager
    async def test(self, url: str | None = None, *, name: str = "test") -> AsyncIterator[Client]:
        """Run the agents and yield a client to them, for a test.

        On the memory broker with a clock that `client.advance(seconds)` moves; with `url`, on
        that RabbitMQ, where advancing really waits. The topology is declared first.
        """
        settings = load_settings(url=url)
        broker: Broker = MemoryBroker() if url is None else RabbitMQBroker(settings, name=name)
        async with AsyncExitStack() as resources:
            resources.push_async_callback(broker.close)
            await broker.connect(timeout_seconds=settings.connect_timeout_seconds)
            await ensure_topology(broker, self.topology(), declare=True)
            if self.lifespan is not None:
                await resources.enter_async_context(self.lifespan())
            serving = self.serving(broker, settings)
            resources.push_async_callback(serving.drain, 1.0)
            await serving.start()
            client = Client(broker, name=name, settings=settings, telemetry=self.telemetry)
            await client.open()
            resources.push_async_callback(client.close)
            yield client

    async def run(
        self,
        broker: Broker,
        *,
        settings: Settings,
        until: asyncio.Event,
        at_once: asyncio.Event | None = None,
        declare: bool = False,
        on_ready: Callable[[], object] | None = None,
    ) -> None:
        """Serve on a connected broker until `until` is set; then drain and return.

        `on_ready` is called once, when every agent consumes.

        Raises: TopologyMissingError, TopologyConflictError, BrokerError.
        """
        await ensure_topology(broker, self.topology(), declare=declare)
        await serve(
            self.serving(broker, settings),
            lifespan=self.lifespan,
            until=until,
            at_once=at_once or asyncio.Event(),
            grace_seconds=settings.grace_seconds,
            on_ready=on_ready,
        )

    def serving(self, broker: Broker, settings: Settings) -> Serving:
        """Return the consumers of this app on `broker`, not yet started."""
        return Serving(
            self.agents,
            broker,
            settings=settings,
            telemetry=self.telemetry,
            middleware=self.middleware,
        )


def unique_agents(given: Sequence[Agent | Target[Any, Any]]) -> list[Agent]:
    """Return each agent once; a handler stands for its agent.

    Raises: DuplicateAgentError if two different agents have one name, ConfigurationError.
    """
    if not given:
        raise ConfigurationError("an AgentApp needs at least one agent: AgentApp([my_agent])")
    agents: dict[str, Agent] = {}
    for item in given:
        agent = item.agent if isinstance(item, BoundHandler) else item
        if not isinstance(agent, Agent):
            name = getattr(item, "__name__", repr(item))
            raise ConfigurationError(
                f"{name} is no agent; decorate it with @agent('name') before listing it"
            )
        if agents.setdefault(agent.name, agent) is not agent:
            raise DuplicateAgentError(agent.name)
        if not agent.handlers:
            raise ConfigurationError(
                f"agent {agent.name!r} has no handler; add one with @{agent.name}.on('intent')"
            )
    return list(agents.values())
