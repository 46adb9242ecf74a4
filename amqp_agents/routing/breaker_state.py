"""What a circuit breaker is told, and what it says: policy, states, permits, transitions."""

from dataclasses import dataclass, fields
from enum import StrEnum
from math import isfinite

from amqp_agents.errors import ConfigurationError


class BreakerState(StrEnum):
    """closed: all may pass; open: nobody; half_open: one probe; held: nobody, by an operator."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When a breaker opens, for how long, and how it comes back.

    `consecutive` covers an agent with three messages an hour, which a ratio never does.
    `probe_seconds` must exceed the time limit of the handler, or an honest slow probe counts as
    lost; `longest_retry_after` keeps one wrong Retry-After from stopping an agent for years.

    Units:  seconds; `failure_ratio` from 0 to 1; `ramp_to` is a concurrency.
    Raises: ConfigurationError for a number that would never open, or never close.

    >>> BreakerPolicy(consecutive=0)
    Traceback (most recent call last):
    amqp_agents.errors.ConfigurationError: breaker 'consecutive' is a number above 0, not 0
    """

    consecutive: int = 5
    failure_ratio: float = 0.5
    min_attempts: int = 10
    window_seconds: float = 60.0
    first_open_seconds: float = 1.0
    longest_open_seconds: float = 60.0
    shortest_open_seconds: float = 0.1
    longest_retry_after: float = 3600.0
    probe_seconds: float = 300.0
    probe_successes: int = 2
    ramp_to: int = 8

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isfinite(value) and value > 0):
                raise ConfigurationError(
                    f"breaker {field.name!r} is a number above 0, not {value!r}"
                )
        if self.failure_ratio > 1:
            raise ConfigurationError(
                f"breaker 'failure_ratio' is at most 1, not {self.failure_ratio!r}"
            )

    def open_seconds(self, openings: int, chance: float) -> float:
        """Return how long to stay open after `openings` earlier ones: 1, 2, 4 … with full jitter.

        Never less than `shortest_open_seconds`: stopping for no time would be a hot loop.

        Units:  `chance` from 0 to 1, anything else is cut to it.

        >>> policy = BreakerPolicy()
        >>> [policy.open_seconds(n, 1.0) for n in (0, 1, 5, 6, 10**9)], policy.open_seconds(3, 0.5)
        ([1.0, 2.0, 32.0, 60.0, 60.0], 4.0)
        """
        doublings = min(openings, 32)  # past any limit; keeps the power a small float
        longest = min(self.first_open_seconds * 2.0**doublings, self.longest_open_seconds)
        return max(self.shortest_open_seconds, longest * min(1.0, max(0.0, chance)))


@dataclass(slots=True, eq=False)
class Permit:
    """One attempt that may be made; good for one report, in the epoch that gave it.

    A watched permit (a probe, or one of a ramp) that is not reported by its deadline counts as
    failed.
    """

    epoch: int
    deadline: float
    spent: bool = False


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of state, for a metric, an event and a health detail.

    Units:  `at` in seconds of the caller's clock.
    """

    old: BreakerState
    new: BreakerState
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Which operator stopped it, why and when."""

    who: str
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to "may I try?": a permit, or how long to wait before asking again."""

    permit: Permit | None
    transitions: tuple[Transition, ...] = ()
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BreakerStatus:
    """A breaker at one moment, for health and metrics.

    Units:  `limit` attempts at once, None for no limit; `since` and `open_until` in seconds of
        the caller's clock.
    """

    state: BreakerState
    since: float
    reason: str
    limit: int | None
    attempts: int
    failures: int
    consecutive: int
    open_until: float | None
    hold: Hold | None

    @property
    def degraded(self) -> bool:
        """Whether less than everything may pass; never a reason to restart the process."""
        return self.limit is not None
