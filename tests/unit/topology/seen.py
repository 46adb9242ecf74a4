"""A broker that shows what was wanted, and ways to make it show something else."""

from dataclasses import replace
from typing import Any

from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import AgentSpec, Policy, Version
from amqp_agents.topology.observed import Observed
from amqp_agents.topology.plan import ChangeKind

CREATE, UPDATE, CONFLICT = ChangeKind.CREATE, ChangeKind.UPDATE, ChangeKind.CONFLICT
AGENTS = [AgentSpec("a", events=("ticket.closed",)), AgentSpec("b", events=("#",))]
DESIRED = standard_topology(AGENTS)
VERSIONS: list[Version] = [(3, 10), (4, 0), (4, 3)]


def with_exchange(actual: Observed, name: str, **changes: Any) -> Observed:
    exchanges = dict(actual.exchanges or {})
    exchanges[name] = replace(exchanges[name], **changes)
    return replace(actual, exchanges=exchanges)


def with_queue(actual: Observed, name: str, **changes: Any) -> Observed:
    queues = dict(actual.queues or {})
    queues[name] = replace(queues[name], **changes)
    return replace(actual, queues=queues)


def with_arguments(actual: Observed, name: str, **arguments: Any) -> Observed:
    have = (actual.queues or {})[name].arguments or {}
    changed = {**have, **{f"x-{key.replace('_', '-')}": v for key, v in arguments.items()}}
    return with_queue(
        actual, name, arguments={key: v for key, v in changed.items() if v is not None}
    )


def with_policy(actual: Observed, policy: Policy) -> Observed:
    others = [each for each in actual.policies or () if each.name != policy.name]
    return replace(actual, policies=(*others, policy))


def without(part: Any, name: str) -> Any:
    return {key: value for key, value in part.items() if key != name}
