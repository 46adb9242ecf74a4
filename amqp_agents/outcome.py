"""How handling one delivery can end: four values, decided by a pure function."""

from dataclasses import dataclass
from typing import TypeAlias

from amqp_agents.config import RetryPolicy
from amqp_agents.errors import AgentError, ExpiredMessageError, RetryLater
from amqp_agents.protocol import AgentMessage
from amqp_agents.protocol.error_payload import text_of

LONGEST_WAIT_SECONDS = 10**9  # far beyond any delay; keeps a suggested wait a plain number


@dataclass(frozen=True, slots=True)
class Ack:
    """Handled: send `reply` to a waiting caller and `messages` to others, then acknowledge.

    `ignored`: it was for nobody here, and is acknowledged all the same.
    """

    reply: AgentMessage | None = None
    messages: tuple[AgentMessage, ...] = ()
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Not handled: park a copy for `delay_seconds`, then acknowledge.

    `counted=False` keeps the attempt number: the handler said "not now", it did not fail.
    """

    delay_seconds: float
    error: Exception
    counted: bool = True


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Given up: park the delivery, with its reason, for a person."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Release:
    """Not ours to finish (shutdown): hand the delivery back, no attempt spent."""

    reason: str


Outcome: TypeAlias = Ack | Retry | DeadLetter | Release


def backoff_seconds(attempt: int, policy: RetryPolicy) -> float:
    """Return how long to wait between failed attempt `attempt` and the next one.

    Doubles from `policy.base_seconds` up to `policy.cap_seconds`.

    Units:  attempts counted from 1  ->  seconds

    >>> [backoff_seconds(n, RetryPolicy()) for n in (1, 2, 6, 7, 10**9)]
    [1.0, 2.0, 32.0, 60.0, 60.0]
    """
    doublings = min(attempt - 1, 32)  # past any cap; keeps the power a small float
    return min(policy.base_seconds * 2.0**doublings, policy.cap_seconds)


def outcome_of(
    error: Exception, *, attempt: int, policy: RetryPolicy, life_seconds: float | None
) -> Retry | DeadLetter:
    """Decide what becomes of a delivery whose handling raised `error`.

    An error of ours says itself whether trying again can help; of any other error we cannot
    know, so it is tried again until the policy gives up. A wait longer than the message's
    remaining life is not waited for.

    Units:  `life_seconds` until the message expires; None for never.

    >>> outcome_of(ValueError("x"), attempt=1, policy=RetryPolicy(), life_seconds=None)
    Retry(delay_seconds=1.0, error=ValueError('x'), counted=True)
    >>> outcome_of(ValueError("x"), attempt=5, policy=RetryPolicy(), life_seconds=None)
    DeadLetter(error=ValueError('x'))
    """
    if isinstance(error, RetryLater):
        # At least a second: uncounted, it would otherwise run in a circle through the broker.
        outcome = Retry(max(1.0, error.seconds), error, counted=False)
    elif _retryable(error) and attempt < policy.max_attempts:
        outcome = Retry(_wait_seconds(error, attempt, policy), error)
    else:
        return DeadLetter(error)
    if life_seconds is not None and outcome.delay_seconds >= life_seconds:
        return DeadLetter(_expires_first(outcome, life_seconds))
    return outcome


def _retryable(error: Exception) -> bool:
    return error.retryable if isinstance(error, AgentError) else True


def _wait_seconds(error: Exception, attempt: int, policy: RetryPolicy) -> float:
    suggested = error.suggested_retry_after if isinstance(error, AgentError) else None
    if isinstance(suggested, int | float) and 0 <= suggested < float("inf"):
        return float(min(suggested, LONGEST_WAIT_SECONDS))
    return backoff_seconds(attempt, policy)


def _expires_first(retry: Retry, life_seconds: float) -> ExpiredMessageError:
    expired = ExpiredMessageError(
        f"the next attempt is due in {retry.delay_seconds:g} s, "
        f"but the message expires in {max(0.0, life_seconds):.3g} s: {text_of(retry.error)}"
    )
    expired.__cause__ = retry.error
    return expired
