"""What a queue is told to do: its own arguments and the one policy that applies to it."""

from collections.abc import Iterable
from dataclasses import dataclass

from amqp_agents.topology.model import Policy, Queue, QueueKind, Version
from amqp_agents.topology.policies import effective_policy

DEFAULT_DELIVERY_LIMIT = 20


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Effective settings of one queue; None is no limit, no exchange, no key."""

    kind: QueueKind
    ttl_ms: int | None
    expires_ms: int | None
    max_length: int | None
    max_bytes: int | None
    rejects: bool
    dead_letter_exchange: str | None
    dead_letter_key: str | None
    at_least_once: bool
    delivery_limit: int | None
    max_priority: int
    single_active: bool


def settings_of(queue: Queue, policies: Iterable[Policy], version: Version) -> QueueSettings:
    """Return the queue's effective settings.

    Where both speak, numbers take the smaller, dead-lettering the argument's, the overflow
    behaviour the policy's word. At-least-once needs a quorum queue that rejects when full:
    else it is silently at most once.
    """
    policy = effective_policy(policies, queue.name, version, kind=queue.kind)
    values = _Values(queue, policy)
    overflow = values.of_policy("overflow")
    exchange = values.of_argument("dead-letter-exchange")
    strategy = values.of_argument("dead-letter-strategy")
    quorum = queue.kind is QueueKind.QUORUM
    return QueueSettings(
        kind=queue.kind,
        ttl_ms=values.least("message-ttl"),
        expires_ms=values.least("expires"),
        max_length=values.least("max-length"),
        max_bytes=values.least("max-length-bytes"),
        rejects=overflow == "reject-publish",
        dead_letter_exchange=exchange,
        dead_letter_key=values.of_argument("dead-letter-routing-key"),
        at_least_once=quorum and strategy == "at-least-once" and overflow == "reject-publish",
        delivery_limit=values.delivery_limit() if quorum else None,
        max_priority=31 if quorum else int(queue.settings.get("x-max-priority", 0)),
        single_active=bool(queue.settings.get("x-single-active-consumer", False)),
    )


class _Values:
    """One setting at a time, as an argument and as the policy has it."""

    def __init__(self, queue: Queue, policy: Policy | None) -> None:
        self._arguments = queue.settings
        self._definition = {} if policy is None else policy.definition

    def of_argument(self, name: str) -> str | None:
        value = self._arguments.get(f"x-{name}", self._definition.get(name))
        return None if value is None else str(value)

    def of_policy(self, name: str) -> str | None:
        value = self._definition.get(name, self._arguments.get(f"x-{name}"))
        return None if value is None else str(value)

    def least(self, name: str) -> int | None:
        return min(self._numbers(name), default=None)

    def delivery_limit(self) -> int | None:
        limits = self._numbers("delivery-limit") or [DEFAULT_DELIVERY_LIMIT]
        limit = max(limits) if min(limits) < 0 else min(limits)
        return None if limit < 0 else limit

    def _numbers(self, name: str) -> list[int]:
        given = (self._arguments.get(f"x-{name}"), self._definition.get(name))
        return [int(value) for value in given if value is not None]
