"""Desired minus actual: what an apply would change, as values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from amqp_agents.topology.compare import (
    comparable,
    exchange_differences,
    policy_differences,
    queue_differences,
    shown,
)
from amqp_agents.topology.model import (
    Binding,
    Exchange,
    Policy,
    Queue,
    Topology,
    Version,
)
from amqp_agents.topology.observed import Observed
from amqp_agents.topology.policies import effective_policy
from amqp_agents.topology.policy_conflicts import hidden, in_effect, intruders

Subject: TypeAlias = Exchange | Queue | Binding | Policy
_BindingKey: TypeAlias = tuple[str, str, bool, str, frozenset[tuple[str, object]]]

CONFLICT_REMEDY = (
    "nothing was changed; change or delete what differs yourself (a queue once it is empty), "
    "then apply again"
)


class ChangeKind(StrEnum):
    """What becomes of one object."""

    CREATE = "create"
    UPDATE = "update"
    CONFLICT = "conflict"


class ObjectKind(StrEnum):
    """Kinds of objects on a broker."""

    EXCHANGE = "exchange"
    QUEUE = "queue"
    BINDING = "binding"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Change:
    """One object that differs; `differences` name each setting with have and want.

    `subject` is the object to declare, or None where nobody can declare the change.
    """

    kind: ChangeKind
    object_kind: ObjectKind
    name: str
    differences: tuple[str, ...] = ()
    subject: Subject | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        what = f"{self.kind.value} {self.object_kind.value} {self.name}"
        return f"{what} ({', '.join(self.differences)})" if self.differences else what


def plan(desired: Topology, actual: Observed, version: Version) -> tuple[Change, ...]:
    """Return the changes that make `actual` as `desired`, in the order to apply them.

    Exchanges come before what names them as their alternate, policies before the queues
    they match, queues before their bindings. Of a part that could not be seen nothing is said.

    >>> desired = Topology(queues=(Queue("q"),))
    >>> [str(change) for change in plan(desired, Observed(queues={}), (4, 0))]
    ['create queue q']
    """
    policies = tuple(policy for policy in desired.policies if policy.min_version <= version)
    return (
        *_exchange_changes(desired.exchanges, actual),
        *_policy_changes(desired, policies, actual, version),
        *_queue_changes(desired.queues, policies, actual, version),
        *_binding_changes(desired.bindings, actual),
    )


def binding_name(binding: Binding) -> str:
    """Return a binding in one line.

    >>> binding_name(Binding("agent.direct", "agent.a", "a"))
    'agent.direct -> agent.a [a]'
    """
    arguments = "".join(f" {key}={shown(value)}" for key, value in binding.arguments.items())
    return f"{binding.source} -> {binding.destination} [{binding.routing_key}]{arguments}"


def alternates_first(exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """Return the exchanges in an order in which every alternate exists before its user.

    >>> from amqp_agents.topology.model import ExchangeKind
    >>> user = Exchange("a", ExchangeKind.DIRECT, alternate="b")
    >>> [each.name for each in alternates_first([user, Exchange("b", ExchangeKind.FANOUT)])]
    ['b', 'a']
    """
    by_name = {exchange.name: exchange for exchange in exchanges}
    ordered: dict[str, Exchange] = {}
    for exchange in exchanges:
        chain: dict[str, Exchange] = {}
        step: Exchange | None = exchange
        while step is not None and step.name not in ordered and step.name not in chain:
            chain[step.name] = step
            step = None if step.alternate is None else by_name.get(step.alternate)
        ordered |= dict(reversed(chain.items()))
    return tuple(ordered.values())


def _exchange_changes(exchanges: Sequence[Exchange], actual: Observed) -> Iterator[Change]:
    if actual.exchanges is None:
        return
    for want in alternates_first(exchanges):
        have = actual.exchanges.get(want.name)
        found = () if have is None else exchange_differences(want, have)
        if have is None or found:
            kind = ChangeKind.CREATE if have is None else ChangeKind.CONFLICT
            yield Change(kind, ObjectKind.EXCHANGE, want.name, found, want)


def _policy_changes(
    desired: Topology, policies: Sequence[Policy], actual: Observed, version: Version
) -> Iterator[Change]:
    if actual.policies is None:
        return
    present = {policy.name: policy for policy in actual.policies}
    ours = {policy.name for policy in desired.policies}
    foreign = [policy for policy in actual.policies if policy.name not in ours]
    for want in policies:
        have = present.get(want.name)
        shadowed, replaced = hidden(want, foreign, desired.queues, actual)
        if shadowed:
            yield Change(ChangeKind.CONFLICT, ObjectKind.POLICY, want.name, shadowed, want)
        elif have is None:
            yield Change(ChangeKind.CREATE, ObjectKind.POLICY, want.name, replaced, want)
        elif found := policy_differences(want, have):
            yield Change(ChangeKind.UPDATE, ObjectKind.POLICY, want.name, found, want)
    for name, found in intruders(desired, policies, foreign, version):
        yield Change(ChangeKind.CONFLICT, ObjectKind.POLICY, name, found)


def _queue_changes(
    queues: Sequence[Queue], policies: Sequence[Policy], actual: Observed, version: Version
) -> Iterator[Change]:
    if actual.queues is None:
        return
    present = {policy.name: policy for policy in actual.policies or ()}
    for want in queues:
        have = actual.queues.get(want.name)
        if have is None:
            yield Change(ChangeKind.CREATE, ObjectKind.QUEUE, want.name, (), want)
            continue
        policy = effective_policy(policies, want.name, version, kind=want.kind)
        if policy is not None and policy_differences(policy, present.get(policy.name, policy)):
            have = replace(have, effective=None)  # of the policy as it was before its update
        found = queue_differences(
            want,
            have,
            policy=policy,
            in_effect=in_effect(want, actual),
            version=version,
        )
        if found:
            yield Change(ChangeKind.CONFLICT, ObjectKind.QUEUE, want.name, found, want)


def _binding_changes(bindings: Sequence[Binding], actual: Observed) -> Iterator[Change]:
    if actual.bindings is None:
        return
    present = {_key(binding) for binding in actual.bindings}
    for want in bindings:
        if _key(want) not in present:
            yield Change(ChangeKind.CREATE, ObjectKind.BINDING, binding_name(want), (), want)


def _key(binding: Binding) -> _BindingKey:
    arguments = frozenset((name, comparable(value)) for name, value in binding.arguments.items())
    where = (binding.source, binding.destination, binding.to_exchange, binding.routing_key)
    return (*where, arguments)
