"""What a broker would take without a word, and should not: found before anything is sent."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from amqp_agents.errors import ConfigurationError
from amqp_agents.topology.arguments import RULES, argument_problems, nearest
from amqp_agents.topology.model import (
    Binding,
    Exchange,
    ExchangeKind,
    Policy,
    Queue,
    Topology,
    Version,
)
from amqp_agents.topology.names import KEY_BYTES
from amqp_agents.topology.policies import ALTERNATE, effective_policy, matches

_Named: TypeAlias = Exchange | Queue | Policy

_MATCH_MODES = ("all", "any", "all-with-x", "any-with-x")
_NEVER_BY_POLICY = ("x-max-priority", "x-single-active-consumer")
_POLICY_KEYS = frozenset(
    {key.removeprefix("x-") for key in RULES if key not in _NEVER_BY_POLICY} | {ALTERNATE}
)


def validate(topology: Topology, version: Version | None = None) -> Topology:
    """Return the topology if a broker will do what it says; `version` makes it stricter.

    Raises: ConfigurationError with every problem, a line each.
    """
    found = problems(topology, version)
    if found:
        raise ConfigurationError("the topology cannot be applied:\n  " + "\n  ".join(found))
    return topology


def problems(topology: Topology, version: Version | None = None) -> tuple[str, ...]:
    """Return every problem of a topology, each with the object it is about.

    >>> problems(Topology(queues=(Queue("q", settings={"x-mesage-ttl": 1}),)))[0][:38]
    "queue q: unknown argument 'x-mesage-tt"
    """
    exchanges = {exchange.name for exchange in topology.exchanges}
    found = [
        *_duplicates("exchange", topology.exchanges),
        *_duplicates("queue", topology.queues),
        *_duplicates("policy", topology.policies),
        *_of_exchanges(topology.exchanges, exchanges),
        *_of_queues(topology.queues, exchanges, version),
        *_of_bindings(topology, exchanges),
        *_of_policies(topology.policies),
    ]
    # Matching needs patterns that compile, so overlaps are looked for last.
    return tuple(found) or tuple(_overlaps(topology))


def _duplicates(what: str, objects: Iterable[_Named]) -> Iterator[str]:
    first: dict[str, _Named] = {}
    for each in objects:
        if first.setdefault(each.name, each) != each:
            yield f"{what} {each.name}: declared twice, differently"


def _of_name(name: str) -> Iterator[str]:
    if not name:
        yield "has no name"
    if len(name.encode()) > KEY_BYTES:
        yield f"the name is {len(name.encode())} bytes long, at most {KEY_BYTES} are possible"
    if name.startswith("amq."):
        yield "names that start with 'amq.' belong to the broker"


def _of_exchanges(exchanges: Sequence[Exchange], known: set[str]) -> Iterator[str]:
    for exchange in exchanges:
        for problem in _of_name(exchange.name):
            yield f"exchange {exchange.name}: {problem}"
        if exchange.alternate is not None and exchange.alternate not in known:
            yield f"exchange {exchange.name}: alternate {exchange.alternate} is not declared"


def _of_queues(queues: Sequence[Queue], known: set[str], version: Version | None) -> Iterator[str]:
    for queue in queues:
        found = [*_of_name(queue.name), *argument_problems(queue.settings, queue.kind, version)]
        target = queue.settings.get("x-dead-letter-exchange")
        if target and target not in known:  # "" is the default exchange, which always exists
            found.append(f"x-dead-letter-exchange {target} is not declared")
        yield from (f"queue {queue.name}: {problem}" for problem in found)


def _of_bindings(topology: Topology, exchanges: set[str]) -> Iterator[str]:
    queues = {queue.name for queue in topology.queues}
    kinds = {exchange.name: exchange.kind for exchange in topology.exchanges}
    for binding in topology.bindings:
        name = f"binding {binding.source} -> {binding.destination} [{binding.routing_key[:40]}]"
        if binding.source not in exchanges:
            yield f"{name}: exchange {binding.source} is not declared"
        what, known = ("exchange", exchanges) if binding.to_exchange else ("queue", queues)
        if binding.destination not in known:
            yield f"{name}: {what} {binding.destination} is not declared"
        if len(binding.routing_key.encode()) > KEY_BYTES:
            yield f"{name}: the routing key is longer than {KEY_BYTES} bytes"
        yield from _of_headers(binding, kinds.get(binding.source), name)


def _of_headers(binding: Binding, kind: ExchangeKind | None, name: str) -> Iterator[str]:
    mode = binding.arguments.get("x-match", "all")
    if kind is ExchangeKind.HEADERS and mode not in _MATCH_MODES:
        yield f"{name}: x-match is {mode!r}, expected one of {', '.join(_MATCH_MODES)}"


def _of_policies(policies: Sequence[Policy]) -> Iterator[str]:
    for policy in policies:
        found = list(_of_name(policy.name))
        if not policy.definition:
            found.append("sets nothing, which the broker refuses")
        try:
            re.compile(policy.pattern)
        except re.error as error:
            found.append(f"pattern {policy.pattern!r} is not a regular expression: {error}")
        for key, value in policy.definition.items():
            found += _of_setting(key, value)
        yield from (f"policy {policy.name}: {problem}" for problem in found)


def _of_setting(key: str, value: str | int | bool) -> Iterator[str]:
    rule = RULES.get(f"x-{key}")
    if key not in _POLICY_KEYS:
        yield f"unknown setting {key!r}; {nearest(key, _POLICY_KEYS)}"
    elif rule is not None and not rule.accepts(value):
        yield f"{key} is {value!r}, expected {rule.expected}"


def _overlaps(topology: Topology) -> Iterator[str]:
    for queue in topology.queues:
        version = max((policy.min_version for policy in topology.policies), default=(4, 0))
        chosen = effective_policy(topology.policies, queue.name, version, kind=queue.kind)
        for other in topology.policies:
            if chosen is None or other is chosen or other.priority != chosen.priority:
                continue
            if matches(other, queue.name, kind=queue.kind):
                pair = f"policies {chosen.name} and {other.name} have the same priority"
                yield f"queue {queue.name}: {pair}, so one of them is hidden"
