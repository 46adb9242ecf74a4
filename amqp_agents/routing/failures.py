"""Whose failure an error is: the message's (counts for nobody), the agent's, or a dependency's.

error                                            counts   dependency
ProtocolError, PermissionDeniedError             no       the sender's mistake
INVALID_PAYLOAD, SCHEMA_MISMATCH,                no       the same, said by another agent or
  PERMISSION_DENIED                                       by an error class of the user's own
not retryable, other than DEPENDENCY_FAILED      no       about this message only
TaskStateError                                   no       somebody else was first
BrokerError                                      no       guarded by the connection's own backoff
CircuitOpenError                                 no       nothing was attempted
RetryLater                                       no       "not now" is not a failure
cancellation, exit                               no       the worker stops
an HTTP answer 4xx that is about the request     no       the dependency refused it, and is well
other AgentErrors, time limits among them        yes      agent:<name>, or what it names itself
any other exception                              yes      mapped class, http:<host>, or none
"""

from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import isfinite
from types import MappingProxyType

from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    BrokerError,
    CircuitOpenError,
    ErrorCode,
    PermissionDeniedError,
    ProtocolError,
    RequestTimeoutError,
    RetryLater,
    TaskStateError,
)
from amqp_agents.routing.http_errors import (
    attribute,
    http_host_of,
    is_about_request,
    retry_after_header_of,
)

MAX_NAME_LENGTH = 128
DEEPEST_CAUSE = 8

NO_MAPPING: Mapping[type[BaseException], str] = MappingProxyType({})

_NEUTRAL = (
    ProtocolError,
    PermissionDeniedError,
    TaskStateError,
    BrokerError,
    CircuitOpenError,
)
_SENDERS_CODES = (
    ErrorCode.INVALID_PAYLOAD,
    ErrorCode.SCHEMA_MISMATCH,
    ErrorCode.PERMISSION_DENIED,
)


def counts_as_failure(error: BaseException) -> bool:
    """Return whether `error` says something about the health of the agent or its dependency.

    What does not count must not reset anything either: report it as abandoned.

    >>> from amqp_agents.errors import DependencyFailedError, HandlerTimeoutError
    >>> counts_as_failure(DependencyFailedError("model down")), counts_as_failure(KeyError("x"))
    (True, True)
    >>> counts_as_failure(HandlerTimeoutError("order_agent", limit_seconds=5))
    True
    >>> counts_as_failure(ProtocolError("bad")), counts_as_failure(RetryLater(5))
    (False, False)
    """
    if isinstance(error, BaseExceptionGroup):
        return any(counts_as_failure(part) for part in error.exceptions)
    if isinstance(error, RetryLater) or not isinstance(error, Exception):
        return False
    if isinstance(error, AgentError):
        return _agent_error_counts(error)
    return not is_about_request(error)


def dependency_of(
    error: BaseException, mapping: Mapping[type[BaseException], str] = NO_MAPPING
) -> str | None:
    """Return what failed beneath the agent, or None if only the agent itself can be blamed.

    Asked in turn, for the error and then for what it was raised from: an attribute
    `dependency`, the class in `mapping` (the nearest base wins), the agent that answered or
    did not, the host of an HTTP request.

    >>> dependency_of(TimeoutError(), {OSError: "model:gpt-x"})
    'model:gpt-x'
    >>> dependency_of(AgentCommunicationError("no", failed_agent="pricing_agent"))
    'agent:pricing_agent'
    >>> dependency_of(KeyError("x")) is None
    True
    """
    if isinstance(error, BaseExceptionGroup):
        named = (dependency_of(e, mapping) for e in error.exceptions if counts_as_failure(e))
        return next((name for name in named if name is not None), None)
    for link in _causes(error):
        name = _named(link) or _mapped(link, mapping) or _asked_agent(link) or http_host_of(link)
        if name is not None:
            return name[:MAX_NAME_LENGTH]
    return None


def retry_after_of(error: BaseException, now: float) -> float | None:
    """Return how long the failing side asked to be left alone, if it did.

    Takes `suggested_retry_after`, or the Retry-After header (seconds or a date) of an HTTP
    answer, of the error or of what it was raised from.

    Units:  `now` in seconds since the epoch  ->  seconds, never negative
    Source: RFC 9110, section 10.2.3.

    >>> from amqp_agents.errors import CapacityExceededError
    >>> retry_after_of(CapacityExceededError("full", suggested_retry_after=7), 0.0)
    7.0
    >>> retry_after_of(KeyError("x"), 0.0) is None
    True
    """
    for link in _causes(error):
        for said in (attribute(link, "suggested_retry_after"), retry_after_header_of(link)):
            seconds = _seconds(said, now)
            if seconds is not None:
                return seconds
    return None


def _agent_error_counts(error: AgentError) -> bool:
    if isinstance(error, _NEUTRAL) or error.code in _SENDERS_CODES:
        return False
    return bool(error.retryable) or error.code == ErrorCode.DEPENDENCY_FAILED


def _causes(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(DEEPEST_CAUSE):
        if link is None:
            return
        yield link
        link = link.__cause__


def _named(error: BaseException) -> str | None:
    name = attribute(error, "dependency")
    return name if isinstance(name, str) and name else None


def _mapped(error: BaseException, mapping: Mapping[type[BaseException], str]) -> str | None:
    return next((mapping[kind] for kind in type(error).__mro__ if kind in mapping), None)


def _asked_agent(error: BaseException) -> str | None:
    if isinstance(error, AgentCommunicationError):
        return f"agent:{error.failed_agent}"
    return f"agent:{error.target}" if isinstance(error, RequestTimeoutError) else None


def _seconds(said: object, now: float) -> float | None:
    if isinstance(said, str):
        said = _seconds_in(said.strip(), now)
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return max(0.0, float(min(said, 1e9))) if isfinite(said) else None


def _seconds_in(text: str, now: float) -> float | None:
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
