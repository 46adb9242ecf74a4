"""Running agents on a broker: check the topology, consume, serve until told to stop, drain."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial

from amqp_agents import middleware as stack
from amqp_agents.agent import Agent
from amqp_agents.announcements import Announcements
from amqp_agents.brokers.base import Broker
from amqp_agents.client import Client
from amqp_agents.config import Settings
from amqp_agents.consumer import Consumer
from amqp_agents.context import MAX_DEPTH
from amqp_agents.errors import TopologyConflictError, TopologyMissingError
from amqp_agents.handling import AgentHandler
from amqp_agents.observability import Event, Telemetry, log_event
from amqp_agents.pipeline import Gate, Middleware, compose
from amqp_agents.protocol import WireLimits
from amqp_agents.publisher import DEPTH_HEADER
from amqp_agents.routing.breakers import Breakers
from amqp_agents.settling import Settling
from amqp_agents.topology.model import Topology
from amqp_agents.topology.plan import ChangeKind, ObjectKind

logger = logging.getLogger("amqp_agents")

REMEDY = "create it with 'amqp-agents topology apply' or start with 'run --declare'"
MAX_DELIVERIES = 10
PROBE_GRACE_SECONDS = 30.0
UNLIMITED_PROBE_SECONDS = 1860.0  # past the time after which RabbitMQ takes a delivery back

Lifespan = Callable[[], AbstractAsyncContextManager[object]]


class Serving:
    """The consumers of one app on one broker, and the client their handlers ask with."""

    def __init__(
        self,
        agents: Sequence[Agent],
        broker: Broker,
        *,
        settings: Settings,
        telemetry: Telemetry,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.broker = broker
        self.telemetry = telemetry.on_clock(broker.clock)
        self._settings, self._middleware = settings, tuple(middleware)
        self.client = Client(broker, name="runtime", settings=settings, telemetry=telemetry)
        self.announcements = Announcements(self.client.publisher, self.telemetry)
        self.consumers = [self._consumer(agent) for agent in agents]

    async def start(self) -> None:
        """Open the replies, then consume for every agent; return once deliveries can flow.

        Raises: BrokerError with the reason of the first agent that cannot be served.
        """
        await self.client.open()
        limit = self._settings.connect_timeout_seconds * 2
        starting = (consumer.start(timeout_seconds=limit) for consumer in self.consumers)
        for failure in await asyncio.gather(*starting, return_exceptions=True):
            if failure is not None:
                raise failure

    async def drain(self, grace_seconds: float) -> int:
        """Stop every consumer and wait for its handlers; return how many were cut off."""
        names = ", ".join(consumer.agent.name for consumer in self.consumers)
        log_event(logger, Event.DRAIN_STARTED, agents=names)
        cut_off = await asyncio.gather(*(c.drain(grace_seconds) for c in self.consumers))
        await self.announcements.close()
        await self.client.close()
        log_event(logger, Event.DRAIN_FINISHED, agents=names, reason=f"cut off: {sum(cut_off)}")
        return sum(cut_off)

    def _consumer(self, agent: Agent) -> Consumer:
        handler = AgentHandler(
            agent,
            asking=self.client.requester,
            clock=self.broker.clock,
            on_ignored=lambda delivery, why: self.telemetry.ignored(agent.name, delivery, why),
        )
        settling = Settling(
            agent,
            self.client.publisher,
            telemetry=self.telemetry,
            reply_seconds=self._settings.publish_timeout_seconds,
            stack_traces=self._settings.stack_traces,
        )
        gate = Gate()
        return Consumer(
            agent,
            compose(handler, [*self._default_stack(agent, gate), *self._middleware]),
            gate=gate,
            broker=self.broker,
            settling=settling,
            telemetry=self.telemetry,
            limits=WireLimits(max_body_bytes=self._settings.max_body_bytes),
        )

    def _default_stack(self, agent: Agent, gate: Gate) -> list[Middleware]:
        clock = self.broker.clock
        limit = agent.time_limit_seconds
        return [
            stack.expiry(clock),
            stack.poison(MAX_DELIVERIES),
            stack.hop_limit(MAX_DEPTH, DEPTH_HEADER),
            *self._breaker(agent, gate),
            *([] if limit is None else [stack.time_limit(agent.name, limit, clock)]),
        ]

    def _breaker(self, agent: Agent, gate: Gate) -> list[Middleware]:
        if agent.breaker is None:
            return []
        limit = agent.time_limit_seconds
        longest = UNLIMITED_PROBE_SECONDS if limit is None else limit + PROBE_GRACE_SECONDS
        # An honest slow probe must not count as lost.
        probe = max(agent.breaker.probe_seconds, longest)
        return [
            stack.circuit_breaker(
                agent.name,
                Breakers(replace(agent.breaker, probe_seconds=probe)),
                gate=gate,
                clock=self.broker.clock,
                on_moved=partial(self.announcements.tell, agent.ref),
            )
        ]


async def ensure_topology(broker: Broker, topology: Topology, *, declare: bool) -> None:
    """Create the topology (`declare`), or check that it is there.

    Policies are not required to run: without them the broker's own defaults apply.

    Raises: TopologyMissingError or TopologyConflictError naming every object and the mend.
    """
    if declare:
        await broker.apply(topology)
        return
    changes = await broker.plan(topology)
    conflicts = [c for c in changes if c.kind is ChangeKind.CONFLICT]
    if conflicts:
        told = [f"{c.object_kind.value} {c.name} ({', '.join(c.differences)})" for c in conflicts]
        raise TopologyConflictError(told, remedy="see 'amqp-agents topology check'")
    missing = [
        f"{c.object_kind.value} {c.name}"
        for c in changes
        if c.kind is ChangeKind.CREATE and c.object_kind is not ObjectKind.POLICY
    ]
    if missing:
        raise TopologyMissingError(shortened(missing), remedy=REMEDY)


def shortened(names: Sequence[str], most: int = 5) -> list[str]:
    """Return the first names, and how many more there are.

    >>> shortened(["a", "b", "c"], 2)
    ['a', 'b', 'and 1 more']
    """
    if len(names) <= most:
        return list(names)
    return [*names[:most], f"and {len(names) - most} more"]


async def serve(
    serving: Serving,
    *,
    lifespan: Lifespan | None,
    until: asyncio.Event,
    at_once: asyncio.Event,
    grace_seconds: float,
    on_ready: Callable[[], object] | None = None,
) -> None:
    """Serve until `until` is set, then drain; `at_once` ends the drain too."""
    async with AsyncExitStack() as resources:
        if lifespan is not None:
            await resources.enter_async_context(lifespan())
        try:
            await serving.start()
            if on_ready is not None:
                on_ready()
            await until.wait()
        except BaseException:
            await serving.drain(0.0)  # ended without patience; what was prefetched goes back
            raise
        drain = asyncio.create_task(serving.drain(grace_seconds))
        hurry = asyncio.create_task(at_once.wait())
        await asyncio.wait({drain, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if drain.done():
            drain.result()
            return
        drain.cancel()
        await serving.drain(0.0)
