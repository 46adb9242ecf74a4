"""The x-arguments that RabbitMQ knows, for each queue type, with the values they take.

Every version takes a misspelt argument without a word and ignores it, and some values are
taken and do something else. So what is sent is checked here.

Source: https://www.rabbitmq.com/docs/queues, /docs/quorum-queues, /docs/streams
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from amqp_agents.topology.model import QueueKind, Version

_Check: TypeAlias = Callable[[Any], bool]

CLASSIC, QUORUM, STREAM = QueueKind.CLASSIC, QueueKind.QUORUM, QueueKind.STREAM
_NOT_STREAM = frozenset({CLASSIC, QUORUM})
_NOT_CLASSIC = frozenset({QUORUM, STREAM})
_ANY = frozenset(QueueKind)
_OWN_PREFIX = "aa-"
_AGE = re.compile(r"[0-9]+[YMDhms]")


@dataclass(frozen=True, slots=True)
class Rule:
    """Which queue types take an argument, with which values, since which version.

    Versions before `since` take the argument and ignore it, or refuse it.
    """

    kinds: frozenset[QueueKind]
    accepts: _Check
    expected: str
    since: Version = (3, 10)


def _whole(least: int, most: int | None = None) -> _Check:
    def check(value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and value >= least and (most is None or value <= most)

    return check


def _one_of(*choices: str) -> tuple[_Check, str]:
    return (lambda value: value in choices), f"one of {', '.join(choices)}"


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value.encode()) <= 255


_LENGTH = (_whole(0), "a whole number, 0 or more")
_TIMER = 2**32 - 1  # milliseconds; longer ones are refused with 406
_POSITIVE = (_whole(1), "a whole number, 1 or more")
_NAME = (_text, "text of at most 255 bytes")
_LOCATOR = _one_of("client-local", "balanced")

RULES: Mapping[str, Rule] = {
    "x-message-ttl": Rule(_NOT_STREAM, _whole(0, _TIMER), "a whole number of ms, 0 to 2**32-1"),
    "x-expires": Rule(_NOT_STREAM, _whole(1, _TIMER), "a whole number of ms, 1 to 2**32-1"),
    "x-max-length": Rule(_NOT_STREAM, *_LENGTH),
    "x-max-length-bytes": Rule(_ANY, *_LENGTH),
    "x-overflow": Rule(_NOT_STREAM, *_one_of("drop-head", "reject-publish", "reject-publish-dlx")),
    "x-dead-letter-exchange": Rule(_NOT_STREAM, *_NAME),
    "x-dead-letter-routing-key": Rule(_NOT_STREAM, *_NAME),
    "x-dead-letter-strategy": Rule(frozenset({QUORUM}), *_one_of("at-most-once", "at-least-once")),
    "x-delivery-limit": Rule(frozenset({QUORUM}), _whole(-1), "a whole number, or -1 for none"),
    "x-single-active-consumer": Rule(
        _NOT_STREAM, lambda value: isinstance(value, bool), "true or false"
    ),
    "x-max-priority": Rule(frozenset({CLASSIC}), _whole(1, 255), "a whole number, 1 to 255"),
    "x-queue-mode": Rule(frozenset({CLASSIC}), *_one_of("default", "lazy")),
    "x-queue-version": Rule(frozenset({CLASSIC}), _whole(1, 2), "1 or 2"),
    "x-queue-leader-locator": Rule(_NOT_CLASSIC, *_LOCATOR),
    "x-quorum-initial-group-size": Rule(frozenset({QUORUM}), *_POSITIVE),
    "x-quorum-target-group-size": Rule(frozenset({QUORUM}), *_POSITIVE, since=(4, 0)),
    "x-consumer-timeout": Rule(frozenset({QUORUM}), *_POSITIVE, since=(4, 0)),
    "x-delayed-retry-type": Rule(
        frozenset({QUORUM}), *_one_of("disabled", "all", "failed", "returned"), since=(4, 3)
    ),
    "x-delayed-retry-min": Rule(frozenset({QUORUM}), *_LENGTH, since=(4, 3)),
    "x-delayed-retry-max": Rule(frozenset({QUORUM}), *_LENGTH, since=(4, 3)),
    "x-initial-cluster-size": Rule(frozenset({STREAM}), *_POSITIVE),
    "x-stream-max-segment-size-bytes": Rule(frozenset({STREAM}), *_POSITIVE),
    "x-stream-filter-size-bytes": Rule(
        frozenset({STREAM}), _whole(16, 255), "a whole number, 16 to 255", since=(4, 0)
    ),
    "x-max-age": Rule(
        frozenset({STREAM}),
        lambda value: isinstance(value, str) and _AGE.fullmatch(value) is not None,
        "a number and one of Y M D h m s, such as 7D",
    ),
}


def nearest(word: str, known: Collection[str]) -> str:
    """Return a hint at what was meant, or at all there is.

    >>> nearest("x-mesage-ttl", RULES)
    "did you mean 'x-message-ttl'?"
    >>> nearest("colour", ["name", "role"])
    'known are: name, role'
    """
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(sorted(known))}"


def argument_problems(
    settings: Mapping[str, Any], kind: QueueKind, version: Version | None = None
) -> Iterator[str]:
    """Yield what is wrong with each argument, and with their combination.

    >>> list(argument_problems({"x-max-priority": 5}, QueueKind.QUORUM))
    ['x-max-priority is not for quorum queues, only for classic']
    """
    for key, value in settings.items():
        if not key.startswith(_OWN_PREFIX):
            yield from _one(key, value, kind, version)
    yield from _together(settings, kind)
    if settings.get("x-delivery-limit") == -1 and version is not None and version < (4, 0):
        yield "x-delivery-limit -1 destroys every message before RabbitMQ 4.0; leave it out"


def _one(key: str, value: Any, kind: QueueKind, version: Version | None) -> Iterator[str]:
    rule = RULES.get(key)
    if rule is None:
        yield f"unknown argument {key!r}, which the broker would ignore; {nearest(key, RULES)}"
    elif kind not in rule.kinds:
        kinds = ", ".join(sorted(each.value for each in rule.kinds))
        yield f"{key} is not for {kind.value} queues, only for {kinds}"
    elif not rule.accepts(value):
        yield f"{key} is {value!r}, expected {rule.expected}"
    elif version is not None and version < rule.since:
        yield f"{key} has no effect before RabbitMQ {rule.since[0]}.{rule.since[1]}"


def _together(settings: Mapping[str, Any], kind: QueueKind) -> Iterator[str]:
    overflow = settings.get("x-overflow")
    exchange = settings.get("x-dead-letter-exchange")
    if kind is QUORUM and overflow == "reject-publish-dlx":
        yield "x-overflow reject-publish-dlx drops messages on quorum queues; use reject-publish"
    if exchange is None and "x-dead-letter-routing-key" in settings:
        yield "x-dead-letter-routing-key needs x-dead-letter-exchange"
    if settings.get("x-dead-letter-strategy") == "at-least-once":
        if overflow != "reject-publish":
            yield (
                "x-dead-letter-strategy at-least-once needs x-overflow reject-publish;"
                " without it dead letters can be lost"
            )
        if exchange is None:
            yield "x-dead-letter-strategy at-least-once needs x-dead-letter-exchange"
