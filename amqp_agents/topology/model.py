"""What should exist on a broker, as values: exchanges, queues, bindings, policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from amqp_agents.topology.names import OWNER

Arguments: TypeAlias = Mapping[str, str | int | bool]
Version: TypeAlias = tuple[int, int]

OWNER_ARGUMENT = "aa-owner"


class ExchangeKind(StrEnum):
    """Exchange types of AMQP 0-9-1."""

    DIRECT = "direct"
    TOPIC = "topic"
    FANOUT = "fanout"
    HEADERS = "headers"


class QueueKind(StrEnum):
    """Queue types of RabbitMQ; always sent explicitly, since the default differs by vhost."""

    QUORUM = "quorum"
    CLASSIC = "classic"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange; `alternate` takes what no binding of it matches."""

    name: str
    kind: ExchangeKind
    alternate: str | None = None
    owned: bool = True

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments it is declared with."""
        owner = {OWNER_ARGUMENT: OWNER} if self.owned else {}
        return owner | ({} if self.alternate is None else {"alternate-exchange": self.alternate})


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue; `settings` are the x-arguments besides the type.

    Settings are identity and safety only: what an operator may tune belongs in a `Policy`.
    """

    name: str
    kind: QueueKind = QueueKind.QUORUM
    settings: Arguments = field(default_factory=dict)
    owned: bool = True

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments it is declared with."""
        owner = {OWNER_ARGUMENT: OWNER} if self.owned else {}
        return {"x-queue-type": self.kind.value, **owner, **self.settings}


@dataclass(frozen=True, slots=True)
class Binding:
    """From an exchange to a queue (or, with `to_exchange`, to another exchange)."""

    source: str
    destination: str
    routing_key: str = ""
    arguments: Arguments = field(default_factory=dict)
    to_exchange: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Tunable settings of one class of queues; `pattern` is anchored and overlaps no other.

    `min_version`: brokers below it cannot do what the definition says, and get no policy.
    """

    name: str
    pattern: str
    definition: Arguments
    priority: int = 10
    apply_to: str = "queues"
    min_version: Version = (3, 10)


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What the topology has to know of one agent."""

    name: str
    role: str | None = None
    capabilities: tuple[str, ...] = ()
    events: tuple[str, ...] = ()  # intents of events and broadcasts; `*`, `#` are wildcards
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything desired in one vhost."""

    agents: tuple[AgentSpec, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()
    policies: tuple[Policy, ...] = ()
