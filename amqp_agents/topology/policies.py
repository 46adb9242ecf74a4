"""Classes of queues and their tunable settings; which policy a broker applies to what."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from amqp_agents.topology.model import (
    Arguments,
    Exchange,
    Policy,
    Queue,
    QueueKind,
    Topology,
    Version,
)
from amqp_agents.topology.names import RESERVED_IDS

ALTERNATE = "alternate-exchange"
LIMIT = "delivery-limit"

# Reserved ids are excluded: no reply queue or delay level can be taken for an agent's.
_AGENT = rf"(?!(?:{'|'.join(sorted(RESERVED_IDS))})(?:\.|$))[A-Za-z0-9_-]{{1,64}}"

# Unlimited has to be said from 4.0 on, where the default of 20 would destroy messages that
# are only looked at. 3.10 has no limit by default, and as an argument takes -1 for 0.
_UNLIMITED: Arguments = {LIMIT: -1}

INBOX = Policy("agent.inbox", rf"^agent\.{_AGENT}$", {LIMIT: 100})
DEAD_LETTERS = Policy("agent.dlq", rf"^agent\.{_AGENT}\.dlq$", _UNLIMITED, min_version=(4, 0))
LOST = Policy("agent.lost", r"^agent\.lost$", _UNLIMITED, min_version=(4, 0))


def matches(
    policy: Policy, name: str, *, apply_to: str = "queues", kind: QueueKind | None = None
) -> bool:
    """Return whether a broker would consider the policy for the object.

    `kind` of a queue brings in the policies for queues of that type only, known from 4.0 on.

    >>> matches(INBOX, "agent.quality_agent"), matches(INBOX, "agent.lost")
    (True, False)
    """
    scopes = {apply_to, "all"}
    if kind is not None:
        scopes.add("streams" if kind is QueueKind.STREAM else f"{kind.value}_queues")
    return policy.apply_to in scopes and re.search(policy.pattern, name) is not None


def effective_policy(
    policies: Iterable[Policy],
    name: str,
    version: Version,
    *,
    apply_to: str = "queues",
    kind: QueueKind | None = None,
) -> Policy | None:
    """Return the one policy that takes effect: the matching one of highest priority.

    Settings of the others do not add to it. Of equal priorities the first by name is taken,
    since the broker hides one of them silently.

    >>> effective_policy([INBOX, DEAD_LETTERS], "agent.quality_agent.dlq", (4, 0)).name
    'agent.dlq'
    """
    found = [
        policy
        for policy in policies
        if policy.min_version <= version and matches(policy, name, apply_to=apply_to, kind=kind)
    ]
    return min(found, key=lambda policy: (-policy.priority, policy.name), default=None)


def policies_as_arguments(topology: Topology, version: Version) -> Topology:
    """Return the topology with every policy turned into arguments of the objects it matches.

    For brokers whose management API cannot be reached. The price: what became an argument
    cannot be changed on a live queue any more. A limit of -1 is left out before 4.0, where
    the argument would destroy every message.
    """
    policies = topology.policies
    return replace(
        topology,
        exchanges=tuple(_settled_exchange(e, policies, version) for e in topology.exchanges),
        queues=tuple(_settled_queue(q, policies, version) for q in topology.queues),
        policies=(),
    )


def argument_settings(policy: Policy, version: Version) -> dict[str, str | int | bool]:
    """Return the policy's definition as x-arguments that this version takes.

    >>> argument_settings(INBOX, (3, 10)), argument_settings(LOST, (3, 10))
    ({'x-delivery-limit': 100}, {})
    """
    return {
        f"x-{key}": value
        for key, value in policy.definition.items()
        if key != ALTERNATE and not (key == LIMIT and value == -1 and version < (4, 0))
    }


def _settled_queue(queue: Queue, policies: Sequence[Policy], version: Version) -> Queue:
    policy = effective_policy(policies, queue.name, version, kind=queue.kind)
    if policy is None:
        return queue
    return replace(queue, settings={**argument_settings(policy, version), **queue.settings})


def _settled_exchange(exchange: Exchange, policies: Sequence[Policy], version: Version) -> Exchange:
    policy = effective_policy(policies, exchange.name, version, apply_to="exchanges")
    alternate = None if policy is None else policy.definition.get(ALTERNATE)
    if exchange.alternate is not None or alternate is None:
        return exchange
    return replace(exchange, alternate=str(alternate))
