"""Every error the package raises, and the codes that cross the wire.

AgentError                          code, retryable: facts of the class
├── ConfigurationError              a wrong declaration, found before a message moves
│   ├── DuplicateAgentError         one name declared twice
│   ├── TopologyMissingError        the broker lacks an exchange, queue or binding
│   └── TopologyConflictError       the broker has it, declared differently
├── ProtocolError                   the message itself is at fault; never retried
│   ├── InvalidPayloadError
│   ├── SchemaMismatchError
│   ├── ExpiredMessageError
│   └── PayloadConflictError        same idempotency key, other digest
├── BrokerError                     the way to or from RabbitMQ failed
│   ├── BrokerConnectionError       not reachable; nothing was sent
│   ├── PublishRejectedError        the broker said no; nothing was stored
│   ├── OutcomeUnknownError         sent, never answered; it may be stored
│   └── UnroutableMessageError      no queue takes it
├── HandlingError                   an agent could not finish its work
│   ├── HandlerTimeoutError
│   ├── RequestTimeoutError         no answer within the requester's patience
│   ├── CapacityExceededError
│   │   └── CircuitOpenError
│   ├── DependencyFailedError
│   └── PermissionDeniedError
├── TaskStateError
│   ├── IllegalTransitionError
│   └── StaleVersionError
└── AgentCommunicationError         another agent answered with an error
    └── NonRetryableError           … and asking again cannot help

RetryLater is a signal to the runtime, not an error.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class ErrorCode(StrEnum):
    """The closed set of codes in an error payload."""

    TIMEOUT = "AGENT_TIMEOUT"
    CAPACITY_EXCEEDED = "CAPACITY_EXCEEDED"
    INVALID_PAYLOAD = "INVALID_PAYLOAD"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNKNOWN = "UNKNOWN"


class AgentError(Exception):
    """Base of every error raised by amqp_agents.

    A handler may raise a subclass of its own: `code` and `retryable` decide what the
    runtime does, `suggested_retry_after` (seconds) overrides the backoff.
    """

    code: ErrorCode = ErrorCode.UNKNOWN
    retryable: bool = False
    suggested_retry_after: int | None = None


class ConfigurationError(AgentError):
    """A declaration or a setting is wrong; nothing was sent or consumed yet."""


class DuplicateAgentError(ConfigurationError):
    """Two declarations of one app claim the same agent or the same intent of it."""

    def __init__(self, name: str, *, intent: str | None = None) -> None:
        self.name, self.intent = name, intent
        what = f"agent {name!r}" if intent is None else f"intent {intent!r} of agent {name!r}"
        super().__init__(f"{what} is declared twice; give each declaration a name of its own")


class TopologyMissingError(ConfigurationError):
    """The broker lacks what the agents need; workers never create shared topology."""

    def __init__(self, missing: Sequence[str], *, remedy: str) -> None:
        self.missing, self.remedy = tuple(missing), remedy
        super().__init__(f"missing on the broker: {', '.join(missing)}; {remedy}")


class TopologyConflictError(ConfigurationError):
    """The broker (or another declaration) has the object, declared differently."""

    def __init__(self, differences: Sequence[str], *, remedy: str) -> None:
        self.differences, self.remedy = tuple(differences), remedy
        super().__init__(f"declared differently: {'; '.join(differences)}; {remedy}")


class ProtocolError(AgentError):
    """The message itself is at fault, so trying again cannot help."""


class InvalidPayloadError(ProtocolError):
    """A body, an envelope or a payload is not what its reader asks for."""

    code = ErrorCode.INVALID_PAYLOAD


class SchemaMismatchError(ProtocolError):
    """A version or a type the reader does not know; the sentence lists what it accepts."""

    code = ErrorCode.SCHEMA_MISMATCH

    def __init__(self, what: str, *, received: str, accepted: Sequence[str]) -> None:
        self.what, self.received, self.accepted = what, received, tuple(accepted)
        super().__init__(f"{what} {received!r} is not accepted; accepted: {', '.join(accepted)}")


class ExpiredMessageError(ProtocolError):
    """The message outlived its ttl or its requester's deadline."""

    code = ErrorCode.TIMEOUT


class PayloadConflictError(ProtocolError):
    """One idempotency key arrived with two different payload digests; neither wins."""

    code = ErrorCode.INVALID_PAYLOAD

    def __init__(self, key: str, *, accepted: str, received: str) -> None:
        self.key, self.accepted, self.received = key, accepted, received
        super().__init__(f"{key!r} was accepted with {accepted} and arrived again with {received}")


class BrokerError(AgentError):
    """The way to or from RabbitMQ failed."""

    code = ErrorCode.DEPENDENCY_FAILED
    retryable = True


class BrokerConnectionError(BrokerError):
    """RabbitMQ cannot be reached or refused the login; nothing was sent."""


class PublishRejectedError(BrokerError):
    """RabbitMQ answered with a negative confirm; nothing was stored, a retry is safe."""


class OutcomeUnknownError(BrokerError):
    """Sent, but the confirm never came: the message may or may not be stored.

    Retry only with the same idempotency key.
    """


class UnroutableMessageError(BrokerError):
    """No queue takes the message: nobody declared the agent or the exchange."""

    retryable = False


class HandlingError(AgentError):
    """An agent could not finish its work; trying again may help."""

    code = ErrorCode.DEPENDENCY_FAILED
    retryable = True


class HandlerTimeoutError(HandlingError):
    """A handler outlived its time limit and was cancelled."""

    code = ErrorCode.TIMEOUT

    def __init__(self, agent: str, *, limit_seconds: float) -> None:
        self.agent, self.limit_seconds = agent, limit_seconds
        super().__init__(f"agent {agent!r} did not finish within {limit_seconds:g} s")


class RequestTimeoutError(HandlingError, TimeoutError):
    """No answer came within the requester's patience; the request may still be worked on."""

    code = ErrorCode.TIMEOUT

    def __init__(self, target: str, *, timeout_seconds: float) -> None:
        self.target, self.timeout_seconds = target, timeout_seconds
        super().__init__(f"no answer from {target!r} within {timeout_seconds:g} s")


class CapacityExceededError(HandlingError):
    """The agent has no room for the work now."""

    code = ErrorCode.CAPACITY_EXCEEDED

    def __init__(self, message: str, *, suggested_retry_after: int | None = None) -> None:
        self.suggested_retry_after = suggested_retry_after
        super().__init__(message)


class CircuitOpenError(CapacityExceededError):
    """The target failed too often; calls to it are refused for a while."""


class DependencyFailedError(HandlingError):
    """Something the agent needs (a model, a database, another service) failed."""


class PermissionDeniedError(HandlingError):
    """The sender may not ask for this, or a reply address is not ours to write to."""

    code = ErrorCode.PERMISSION_DENIED
    retryable = False


class TaskStateError(AgentError):
    """A task's state does not allow the transition."""


class IllegalTransitionError(TaskStateError):
    """The white list of transitions does not contain this one."""


class StaleVersionError(TaskStateError):
    """Someone else moved the task first; read it again, then decide."""

    retryable = True


class AgentCommunicationError(AgentError):
    """Another agent answered a request with an error payload.

    A handler may raise it too, or its subclass: then this agent is the one that failed.
    """

    def __init__(
        self,
        message: str,
        *,
        failed_agent: str | None = None,
        code: ErrorCode = ErrorCode.UNKNOWN,
        suggested_retry_after: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.code, self.failed_agent = code, failed_agent
        self.suggested_retry_after = suggested_retry_after
        self.details: Mapping[str, Any] = details or {}
        self.retryable = not isinstance(self, NonRetryableError)
        whose = "" if failed_agent is None else f"agent {failed_agent!r} answered {code.value}: "
        super().__init__(f"{whose}{message}")


class NonRetryableError(AgentCommunicationError):
    """Asking again cannot help: another agent says so, or a handler that raises it."""


class RetryLater(Exception):  # noqa: N818 - a signal, as StopIteration is
    """Raise in a handler: not now, try again in `seconds`, without spending an attempt.

    For rate limits and pending approvals; bounded by the message's own expiry. Less than one
    second counts as one.
    """

    def __init__(self, seconds: float, reason: str = "not now") -> None:
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"RetryLater takes seconds from 0 on, not {seconds!r}")
        self.seconds, self.reason = seconds, reason
        super().__init__(f"{reason}; again in {seconds:g} s")
