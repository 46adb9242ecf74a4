"""How long a message still counts: the shorter of its ttl and its requester's patience."""

import math

from amqp_agents.protocol.envelope import AgentMessage
from amqp_agents.protocol.times import epoch_ms

CLOCK_HEADER = "aa-clock-ms"
"""When the age of a message starts again: set by a replay, and on a scheduled message."""


def remaining_seconds(message: AgentMessage, *, clock_ms: int | None, now: float) -> float | None:
    """Return how long the message still counts; 0.0 once it expired, None for never.

    Age counts from the later of its timestamp and `clock_ms`. It is never negative: a
    sender whose clock runs ahead gains what its clock is ahead by, and not a second beyond.

    Units: `clock_ms` milliseconds and `now` seconds since the epoch  ->  seconds

    >>> message = AgentMessage(sender="a", type="event", timestamp=1000, ttl=30)
    >>> remaining_seconds(message, clock_ms=None, now=1010.0)
    20.0
    >>> remaining_seconds(message, clock_ms=1_005_000, now=1010.0)
    25.0
    """
    left = remaining_ms(message, clock_ms=clock_ms, now=now)
    return None if left is None else left / 1000


def remaining_ms(message: AgentMessage, *, clock_ms: int | None, now: float) -> int | None:
    """Return `remaining_seconds` in whole milliseconds, rounded up."""
    limits = []
    if message.ttl is not None:
        limits.append(message.ttl * 1000)
    if message.deadline_ms is not None:
        limits.append(message.deadline_ms)
    if not limits:
        return None
    start = epoch_ms(message.timestamp)
    if clock_ms is not None:
        start = max(start, clock_ms)
    age_ms = max(0, math.floor(now * 1000) - start)
    return max(0, min(limits) - age_ms)
