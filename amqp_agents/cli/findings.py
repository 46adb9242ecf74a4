"""What doctor finds out, one line each: whether it is right, what it is, and what mends it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from amqp_agents.brokers.management import REFUSED, Management, ManagementError
from amqp_agents.errors import BrokerConnectionError
from amqp_agents.topology import names
from amqp_agents.topology.plan import Change, ChangeKind

OLDEST, DEFAULT_LIMIT_SINCE, NEWEST_TRIED = (3, 10), (4, 0), (4, 3)
WRITES_POLICIES = frozenset({"policymaker", "administrator"})
SHOWN = 5
WORDS = {ChangeKind.CREATE: "missing", ChangeKind.UPDATE: "differs", ChangeKind.CONFLICT: "differs"}


class State(StrEnum):
    """How a finding is: only WRONG makes doctor fail."""

    RIGHT = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `mend` says what to do about it, if anything."""

    about: str
    state: State
    told: str
    mend: str | None = None


def of_version(version: tuple[int, int, int]) -> Finding:
    """Return what is known of a version of RabbitMQ.

    >>> of_version((3, 8, 2)).state.value, of_version((4, 0, 5)).state.value
    ('wrong', 'ok')
    """
    text, short = ".".join(map(str, version)), version[:2]
    if short < OLDEST:
        return Finding("version", State.WRONG, f"RabbitMQ {text}", "upgrade to 3.10 or newer")
    if short > NEWEST_TRIED:
        told = f"RabbitMQ {text}, newer than what this release was tried with (3.10 to 4.3)"
        return Finding("version", State.NOTE, told, "run your own tests against it first")
    if short < DEFAULT_LIMIT_SINCE:
        told = f"RabbitMQ {text}: without a policy it redelivers a failing message for ever"
        return Finding("version", State.RIGHT, told)
    told = f"RabbitMQ {text}: without a policy it drops a message at 20 failed deliveries"
    return Finding("version", State.RIGHT, told)


def of_plugins(overview: Mapping[str, Any]) -> Finding:
    """Return which plugins are seen that this package or its dashboards use."""
    listeners = overview.get("listeners")
    protocols = (
        {str(each.get("protocol")) for each in listeners if isinstance(each, Mapping)}
        if isinstance(listeners, list)
        else set()
    )
    if "http/prometheus" in protocols:
        return Finding("plugins", State.RIGHT, "rabbitmq_management, rabbitmq_prometheus")
    return Finding(
        "plugins",
        State.NOTE,
        "rabbitmq_management; rabbitmq_prometheus is not seen",
        "for dashboards: rabbitmq-plugins enable rabbitmq_prometheus",
    )


def of_permissions(permissions: Mapping[str, Any] | None, user: str) -> Finding:
    """Return what the user may do in the vhost, compared with what agents need."""
    if permissions is None:
        return Finding(
            "permissions",
            State.WRONG,
            f"user {user!r} has none in this vhost",
            f"rabbitmqctl set_permissions -p VHOST {user} '.*' '.*' '.*'",
        )
    lacking = tuple(_lacking(permissions))
    if not lacking:
        return Finding("permissions", State.RIGHT, f"user {user!r} may declare, write and read")
    shown = ", ".join(lacking[:SHOWN])
    return Finding(
        "permissions",
        State.WRONG,
        f"user {user!r} may not {shown}",
        f"rabbitmqctl set_permissions -p VHOST {user} '^agent\\..*' '^agent\\..*' '^agent\\..*'",
    )


def of_topology(changes: Sequence[Change], what: str, mend: str) -> Finding:
    """Return whether the topology is there; a tunable setting that differs is no fault."""
    if not changes:
        return Finding("topology", State.RIGHT, f"{what}: complete")
    shown = "; ".join(told_of(change) for change in changes[:SHOWN])
    more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    faulty = any(change.kind is not ChangeKind.UPDATE for change in changes)
    state = State.WRONG if faulty else State.NOTE
    return Finding("topology", state, f"{what}: {shown}{more}", mend)


def told_of(change: Change) -> str:
    """Return one difference for people, each setting of it with what is there and wanted.

    >>> from amqp_agents.topology.plan import ObjectKind
    >>> told_of(Change(ChangeKind.CREATE, ObjectKind.QUEUE, "agent.quality_agent"))
    'missing queue agent.quality_agent'
    """
    what = f"{WORDS[change.kind]} {change.object_kind.value} {change.name}"
    return f"{what}: {'; '.join(change.differences)}" if change.differences else what


async def management_fault(management: Management) -> str | None:
    """Return why policies cannot be written by the management API; None if they can.

    Which broker it belongs to is not looked at.
    """
    try:
        tags = tags_of(await management.whoami())
    except BrokerConnectionError as error:
        return str(error)
    except ManagementError as error:
        if error.status not in REFUSED:
            raise
        return f"{error}; give it: rabbitmqctl set_user_tags USER policymaker"
    if not tags & WRITES_POLICIES:
        return (
            "the user may look at the management API but not write policies; "
            "rabbitmqctl set_user_tags USER policymaker"
        )
    return None


def tags_of(whoami: Mapping[str, Any]) -> frozenset[str]:
    """Return the tags of a user: a list, or before 3.9 a text with commas.

    >>> sorted(tags_of({"tags": "management,policymaker"}))
    ['management', 'policymaker']
    """
    told = whoami.get("tags")
    words = told.split(",") if isinstance(told, str) else told
    return (
        frozenset(str(word).strip() for word in words) if isinstance(words, list) else frozenset()
    )


def _lacking(permissions: Mapping[str, Any]) -> Iterator[str]:
    inbox, reply = names.inbox("x"), names.reply_queue("x")
    needed = {
        "configure": (reply, inbox, names.DIRECT),
        "write": (names.DIRECT, names.EVENTS, names.DELAY, names.DLX, names.REPLY, reply, inbox),
        "read": (inbox, names.dead_letter_queue("x"), reply, names.REPLY, names.DIRECT),
    }
    for verb, objects in needed.items():
        pattern = str(permissions.get(verb, ""))
        for name in objects:
            if not _allows(pattern, name):
                yield f"{verb} {name}"


def _allows(pattern: str, name: str) -> bool:
    # RabbitMQ takes an empty pattern for "nothing".
    try:
        return bool(pattern) and re.search(pattern, name) is not None
    except re.error:
        return True  # only the broker can tell
