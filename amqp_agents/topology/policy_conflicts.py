"""Policies of others that hide ours, are hidden by ours, or touch what must stay untouched."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from amqp_agents.topology.model import Exchange, Policy, Queue, Topology, Version
from amqp_agents.topology.names import DIRECT
from amqp_agents.topology.observed import Observed
from amqp_agents.topology.policies import ALTERNATE, LIMIT, effective_policy, matches

# On a delay level a shorter life releases messages early; a limit makes the level refuse
# them; on a queue of dead letters each of these destroys what was kept for a person.
HARMFUL = ("message-ttl", "expires", "max-length", "max-length-bytes", LIMIT)


def hidden(
    ours: Policy, foreign: Sequence[Policy], queues: Sequence[Queue], actual: Observed
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which policies of others hide ours, and which of them ours takes the place of.

    One policy applies to a queue; the settings of the rest are gone from it.
    """
    shadowed, replaced = [], []
    classed = [queue for queue in queues if _matched(ours, queue)]
    for other in foreign:
        names = [queue.name for queue in classed if _applies(other, queue, actual)]
        if not names:
            continue
        if other.priority >= ours.priority:
            ranks = f"priority {other.priority} against {ours.priority}"
            shadowed.append(f"hidden by policy {other.name!r} ({ranks}) on {_some(names)}")
        elif lost := sorted(other.definition.keys() - ours.definition.keys()):
            ends = f"ends {', '.join(lost)} of policy {other.name!r}"
            replaced.append(f"{ends} on {_some(names)}")
    return tuple(shadowed), tuple(replaced)


def intruders(
    desired: Topology, ours: Sequence[Policy], foreign: Sequence[Policy], version: Version
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each policy of others that sets what must not be set where ours has no say."""
    bare = [
        queue
        for queue in desired.queues
        if effective_policy(ours, queue.name, version, kind=queue.kind) is None
    ]
    for other in foreign:
        found = [*_harm(other, bare), *_swallowed(other, desired.exchanges)]
        if found:
            yield other.name, tuple(found)


def in_effect(queue: Queue, actual: Observed) -> Mapping[str, Any]:
    """Return what policies set on a queue there, worked out if the broker does not say yet."""
    have = (actual.queues or {}).get(queue.name)
    if have is not None and have.effective is not None:
        return have.effective
    found = [policy for policy in actual.policies or () if _matched(policy, queue)]
    chosen = max(found, key=lambda policy: policy.priority, default=None)
    return {} if chosen is None else chosen.definition


def _harm(policy: Policy, bare: Sequence[Queue]) -> Iterator[str]:
    touched = [queue for queue in bare if _matched(policy, queue)]
    for key in HARMFUL:
        value = policy.definition.get(key)
        names = [queue.name for queue in touched if queue.settings.get(f"x-{key}") != value]
        if value is not None and names:
            yield f"{key}: have {value}, want none on {_some(names)}"


def _swallowed(policy: Policy, exchanges: Sequence[Exchange]) -> Iterator[str]:
    """Yield what keeps a message to an unknown agent from coming back to its sender."""
    alternate = policy.definition.get(ALTERNATE)
    for exchange in exchanges:
        if alternate is not None and exchange.name == DIRECT and _matched(policy, exchange):
            yield f"{ALTERNATE}: have {alternate}, want none on {DIRECT}"


def _applies(policy: Policy, queue: Queue, actual: Observed) -> bool:
    have = (actual.queues or {}).get(queue.name)
    return (have is not None and have.policy == policy.name) or _matched(policy, queue)


def _matched(policy: Policy, subject: Queue | Exchange) -> bool:
    """Return whether it matches; a pattern that only the broker understands does not."""
    try:
        if isinstance(subject, Exchange):
            return matches(policy, subject.name, apply_to="exchanges")
        return matches(policy, subject.name, kind=subject.kind)
    except re.error:
        return False


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
