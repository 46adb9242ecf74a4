"""How one object differs from what was wanted; sayings of different versions made equal."""

from collections.abc import Iterator, Mapping
from typing import Any

from amqp_agents.topology.model import OWNER_ARGUMENT, Exchange, Policy, Queue, Version
from amqp_agents.topology.observed import ObservedExchange, ObservedQueue
from amqp_agents.topology.policies import ALTERNATE, argument_settings

TYPE = "x-queue-type"


def comparable(value: Any) -> tuple[type, Any]:
    """Return the value with its wire form taken off, so that equal means equal.

    A long, an integral float and an int are one number; true is neither 1 nor a word.

    >>> comparable(1000.0) == comparable(1000), comparable(b"quorum") == comparable("quorum")
    (True, True)
    >>> comparable(True) == comparable(1)
    False
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="replace")
    return type(value), value


def shown(value: Any) -> str:
    """Return the value as operators write it.

    >>> shown(True), shown(1000.0), shown(None)
    ('true', '1000', 'none')
    """
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(comparable(value)[1])


def difference(setting: str, have: Any, want: Any) -> str:
    """Return one setting with both values.

    >>> difference("x-message-ttl", None, 1000)
    'x-message-ttl: have none, want 1000'
    """
    return f"{setting}: have {shown(have)}, want {shown(want)}"


def exchange_differences(want: Exchange, have: ObservedExchange) -> tuple[str, ...]:
    """Return what makes the exchange another one; nothing of it can be changed in place."""
    found = []
    if have.kind is not None and have.kind != want.kind.value:
        found.append(difference("type", have.kind, want.kind.value))
    found += _flags(have, internal=False)
    if have.arguments is not None:
        found += _arguments(have.arguments, want.arguments)
    return tuple(found)


def queue_differences(
    want: Queue,
    have: ObservedQueue,
    *,
    policy: Policy | None,
    in_effect: Mapping[str, Any],
    version: Version,
) -> tuple[str, ...]:
    """Return what makes the queue another one, or hinders the `policy` wanted for it.

    `in_effect` is what policies set on the broker. An argument that says what a policy would
    set is no difference, whichever of both the broker has: the effect is the same.
    """
    found = []
    kind = _kind(have)
    if kind is not None and kind != want.kind.value:
        found.append(difference(TYPE, kind, want.kind.value))
    found += _flags(have, exclusive=False)
    if have.arguments is not None:
        tunable = {} if policy is None else argument_settings(policy, version)
        provided = {f"x-{key}": value for key, value in in_effect.items()}
        found += _arguments(have.arguments, want.arguments, tunable=tunable, provided=provided)
    if policy is not None and have.policy == policy.name:
        found += _hindered(policy, have.effective)
    return tuple(found)


def policy_differences(want: Policy, have: Policy) -> tuple[str, ...]:
    """Return what an update of the policy changes."""
    pairs = [
        ("pattern", have.pattern, want.pattern),
        ("priority", have.priority, want.priority),
        ("apply-to", have.apply_to, want.apply_to),
    ]
    pairs += [
        (key, have.definition.get(key), want.definition.get(key))
        for key in sorted(have.definition.keys() | want.definition.keys())
    ]
    return tuple(difference(*pair) for pair in pairs if comparable(pair[1]) != comparable(pair[2]))


def _kind(have: ObservedQueue) -> str | None:
    if have.kind is not None or have.arguments is None:
        return have.kind
    return shown(have.arguments.get(TYPE, "classic"))  # 3.10 stores no type for classic


def _flags(have: ObservedExchange | ObservedQueue, **extra: bool) -> Iterator[str]:
    for flag, want in {"durable": True, "auto_delete": False, **extra}.items():
        if getattr(have, flag) is not want:
            yield difference(flag, getattr(have, flag), want)


def _arguments(
    have: Mapping[str, Any],
    want: Mapping[str, Any],
    *,
    tunable: Mapping[str, Any] | None = None,
    provided: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    for key in sorted(have.keys() | want.keys() - {TYPE}):
        mine, theirs = want.get(key), have.get(key)
        if comparable(mine) == comparable(theirs) or key == TYPE:
            continue
        if mine is None and (_without_effect(key) or _equal(tunable, key, theirs)):
            continue
        if theirs is None and (key == OWNER_ARGUMENT or _equal(provided, key, mine)):
            continue
        yield difference(key, theirs, mine)


def _without_effect(key: str) -> bool:
    return not key.startswith("x-") and key not in (ALTERNATE, OWNER_ARGUMENT)


def _equal(settings: Mapping[str, Any] | None, key: str, value: Any) -> bool:
    return (
        settings is not None and key in settings and comparable(settings[key]) == comparable(value)
    )


def _hindered(policy: Policy, effective: Mapping[str, Any] | None) -> Iterator[str]:
    for key, want in policy.definition.items():
        if effective is not None and comparable(effective.get(key)) != comparable(want):
            yield difference(f"{key} in effect (operator policy)", effective.get(key), want)
