"""What a broker shows of itself, as values; whatever could not be seen is None."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amqp_agents.topology.model import Binding, Policy, Topology, Version
from amqp_agents.topology.policies import effective_policy


@dataclass(frozen=True, slots=True)
class ObservedExchange:
    """An exchange that exists. A passive declare shows no more than that."""

    kind: str | None = None
    arguments: Mapping[str, Any] | None = None
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False


@dataclass(frozen=True, slots=True)
class ObservedQueue:
    """A queue that exists. `policy` and `effective` name the one policy that applies to it.

    `effective` is what policy and operator policy make together. Brokers show both some
    seconds late, and None stands for "not seen", not for "has none".
    """

    kind: str | None = None
    arguments: Mapping[str, Any] | None = None
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    policy: str | None = None
    effective: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One vhost as it is. Over AMQP alone bindings and policies cannot be seen."""

    exchanges: Mapping[str, ObservedExchange] | None = None
    queues: Mapping[str, ObservedQueue] | None = None
    bindings: tuple[Binding, ...] | None = None
    policies: tuple[Policy, ...] | None = None


def observed_of(topology: Topology, version: Version) -> Observed:
    """Return what a broker shows that holds exactly this topology.

    >>> observed_of(Topology(), (4, 0)).queues
    {}
    """
    policies = tuple(policy for policy in topology.policies if policy.min_version <= version)
    return Observed(
        exchanges={
            exchange.name: ObservedExchange(exchange.kind.value, exchange.arguments)
            for exchange in topology.exchanges
        },
        queues={
            queue.name: _observed_queue(queue.kind.value, queue.arguments, policy)
            for queue in topology.queues
            for policy in [effective_policy(policies, queue.name, version, kind=queue.kind)]
        },
        bindings=topology.bindings,
        policies=policies,
    )


def _observed_queue(
    kind: str, arguments: Mapping[str, Any], policy: Policy | None
) -> ObservedQueue:
    if policy is None:
        return ObservedQueue(kind, arguments, effective={})
    return ObservedQueue(kind, arguments, policy=policy.name, effective=policy.definition)
