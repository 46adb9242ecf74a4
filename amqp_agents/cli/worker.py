"""One worker process: connect, check or declare, serve until a signal, drain."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from amqp_agents.app import AgentApp
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.cli.connecting import version_text, whereabouts
from amqp_agents.cli.output import note, say, say_json
from amqp_agents.cli.stopping import Stopping
from amqp_agents.cli.topology import settings_told, summary
from amqp_agents.config import Settings
from amqp_agents.lifecycle import ensure_topology, serve
from amqp_agents.topology.plan import Change, ChangeKind, ObjectKind

BECOMING_READY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """What is told once at the start: who runs, where, on which topology."""

    agents: tuple[str, ...]
    version: str
    where: dict[str, str]
    declared: tuple[str, ...] | None
    settings: str
    warnings: tuple[str, ...]

    def say(self, *, as_json: bool) -> None:
        """Print it: for people, or as one JSON document."""
        if as_json:
            say_json(
                {
                    "agents": self.agents,
                    "rabbitmq": self.where | {"version": self.version},
                    "declared": self.declared,
                    "settings": self.settings,
                    "warnings": self.warnings,
                }
            )
            return
        hosts, vhost, user = self.where["hosts"], self.where["vhost"], self.where["user"]
        say(f"agents    {', '.join(self.agents)}")
        say(f"rabbitmq  {self.version} at {hosts}, vhost {vhost!r}, user {user!r}")
        if self.declared is None:
            say("topology  checked: it is there")
        else:
            say(f"topology  created {summary(self.declared) or 'nothing, all was there'}")
        say(f"          {self.settings}")
        for warning in self.warnings:
            note(f"warning: {warning}")


class Worker:
    """Runs an app in this process; `quiet` leaves the telling to the supervisor."""

    def __init__(
        self,
        app: AgentApp,
        settings: Settings,
        *,
        declare: bool,
        name: str = "run",
        quiet: bool = False,
        as_json: bool = False,
    ) -> None:
        self._app, self._settings = app, settings
        self._declare, self._name = declare, name
        self._quiet, self._as_json = quiet, as_json

    async def run(self, stopping: Stopping) -> int:
        """Serve until a signal; return the exit code.

        Raises: BrokerError, ConfigurationError, what the app's lifespan raises.
        """
        stopping.attach()
        broker = RabbitMQBroker(self._settings, name=self._name)
        ready = asyncio.Event()
        serving = asyncio.create_task(self._serve(broker, stopping, ready))
        try:
            await _stopped_or_ended(serving, ready, stopping)
        finally:
            await broker.close()
        if not serving.cancelled():
            serving.result()
        return 1 if stopping.hurried else 0

    async def prepare(self, broker: RabbitMQBroker) -> Start:
        """Connect, and declare or check the topology. Raises: BrokerError, ConfigurationError."""
        await broker.connect(timeout_seconds=self._settings.connect_timeout_seconds)
        topology = self._app.topology()
        changes = await ensure_topology(broker, topology, declare=self._declare)
        made = tuple(f"{each.object_kind.value} {each.name}" for each in changes)
        declared = made if self._declare else None
        warnings = () if self._declare else limits_missing(changes)
        by_policies = bool(broker.policies_by_management)
        if not by_policies:
            warnings += (
                "without a management API that this user may write policies to, bindings are not "
                "checked and limits cannot be changed later; set AMQP_AGENTS_MANAGEMENT_URL, or "
                "ask 'amqp-agents doctor'",
            )
        return Start(
            agents=tuple(agent.name for agent in self._app.agents),
            version=version_text(broker.version),
            where=whereabouts(self._settings),
            declared=declared,
            settings=settings_told(topology, broker.version[:2], by_policies=by_policies),
            warnings=warnings,
        )

    async def _serve(
        self, broker: RabbitMQBroker, stopping: Stopping, ready: asyncio.Event
    ) -> None:
        start = await self.prepare(broker)
        if not self._quiet:
            start.say(as_json=self._as_json)

        def announce() -> None:
            ready.set()
            if self._as_json:
                return
            if self._quiet:
                say(f"ready     worker {os.getpid()}")
            else:
                say("ready     Ctrl+C ends it once running work is done")

        await serve(
            self._app.serving(broker, self._settings),
            lifespan=self._app.lifespan,
            until=stopping.until,
            at_once=stopping.at_once,
            grace_seconds=self._settings.grace_seconds,
            on_ready=announce,
        )


def limits_missing(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return a warning for each policy that is not as declared; agents run without it.

    >>> limits_missing([Change(ChangeKind.CREATE, ObjectKind.POLICY, "agent.inbox")])[0][:37]
    'policy agent.inbox is missing, so the'
    """
    words = {ChangeKind.CREATE: "missing"}
    return tuple(
        f"policy {each.name} is {words.get(each.kind, 'another')}, so the broker's own limits "
        "hold; run 'amqp-agents topology apply'"
        for each in changes
        if each.object_kind is ObjectKind.POLICY
    )


async def _stopped_or_ended(
    serving: "asyncio.Task[None]", ready: asyncio.Event, stopping: Stopping
) -> None:
    """Wait for the end. What was not serving yet when the signal came has nothing to drain."""
    stop = asyncio.create_task(stopping.until.wait())
    await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not serving.done() and not ready.is_set():
        becoming_ready = asyncio.create_task(ready.wait())
        await asyncio.wait(
            {serving, becoming_ready},
            timeout=BECOMING_READY_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        becoming_ready.cancel()
        if not ready.is_set():
            serving.cancel()
    await asyncio.wait({serving})
