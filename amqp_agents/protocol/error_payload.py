"""Errors as payloads, and payloads as errors."""

import math
from collections.abc import Mapping
from traceback import TracebackException
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    ErrorCode,
    NonRetryableError,
    RetryLater,
)

MAX_RETRY_AFTER_SECONDS = 2**31 - 1
MAX_TEXT_BYTES = 2048
MAX_STACK_BYTES = 8192

_CODES = frozenset(ErrorCode)


class ErrorPayload(BaseModel):
    """What an agent answers that could not do what it was asked.

    Units: `suggested_retry_after` seconds.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    code: ErrorCode
    message: str
    details: dict[str, Any] = Field(default_factory=dict)
    retryable: bool = False
    suggested_retry_after: int | None = None
    failed_agent: str
    stack_trace: str | None = None


def error_payload_of(
    error: Exception, *, failed_agent: str, stack_trace: str | None = None
) -> ErrorPayload:
    """Describe `error` for another agent; the texts are cut, so that any error fits.

    An error of ours says itself what it is. Of any other we cannot know whether asking
    again helps, so the answer does not rule it out.

    >>> payload = error_payload_of(ValueError("no such order"), failed_agent="order_agent")
    >>> payload.code.value, payload.message, payload.retryable, payload.details
    ('UNKNOWN', 'no such order', True, {'error': 'ValueError'})
    """
    details: dict[str, Any] = {"error": clipped(type(error).__name__, 128)}
    if isinstance(error, AgentCommunicationError) and error.failed_agent is not None:
        details["origin"] = clipped(str(error.failed_agent), 128)
    return ErrorPayload(
        code=_code(error.code) if isinstance(error, AgentError) else ErrorCode.UNKNOWN,
        message=clipped(text_of(error), MAX_TEXT_BYTES),
        details=details,
        retryable=bool(error.retryable) if isinstance(error, AgentError) else True,
        suggested_retry_after=_suggested(error),
        failed_agent=failed_agent,
        stack_trace=None if stack_trace is None else clipped(stack_trace, MAX_STACK_BYTES),
    )


def read_error_payload(payload: Mapping[str, Any], *, failed_agent: str) -> ErrorPayload:
    """Read the payload of an error message, whatever its sender put there.

    An answer that reports a failure must not fail to be read: what is missing or strange
    becomes UNKNOWN and not retryable, and `failed_agent` stands in for an unnamed agent.

    >>> read_error_payload({"error": "boom"}, failed_agent="order_agent").code.value
    'UNKNOWN'
    """
    message, details = payload.get("message"), payload.get("details")
    named, stack = payload.get("failed_agent"), payload.get("stack_trace")
    return ErrorPayload(
        code=_code(payload.get("code")),
        message=message if isinstance(message, str) else "the error came without a message",
        details=details if isinstance(details, dict) else {},
        retryable=payload.get("retryable") is True,
        suggested_retry_after=_whole_seconds(payload.get("suggested_retry_after")),
        failed_agent=named if isinstance(named, str) and named else failed_agent,
        stack_trace=stack if isinstance(stack, str) else None,
    )


def error_of(payload: ErrorPayload) -> AgentCommunicationError:
    """Return the error to raise where the answer was waited for.

    A `NonRetryableError` unless the payload says that asking again may help.

    >>> payload = ErrorPayload(code=ErrorCode.TIMEOUT, message="too slow", failed_agent="a")
    >>> error_of(payload)
    NonRetryableError("agent 'a' answered AGENT_TIMEOUT: too slow")
    """
    kind = AgentCommunicationError if payload.retryable else NonRetryableError
    return kind(
        payload.message,
        failed_agent=payload.failed_agent,
        code=payload.code,
        suggested_retry_after=payload.suggested_retry_after,
        details=payload.details,
    )


def text_of(error: BaseException) -> str:
    """Return the text of an error, also of one that fails to write itself.

    A validation error is told by its fields alone: the values may be secret.

    >>> text_of(KeyError()), text_of(ValueError("no"))
    ('KeyError', 'no')
    """
    if isinstance(error, ValidationError):
        return f"{error.title}: {validation_text(error)}"
    return str(TracebackException(type(error), error, None)) or type(error).__name__


def validation_text(error: ValidationError) -> str:
    """Return what is wrong with which field, without the values (they may be secret)."""
    wrong = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'payload'}: {item['msg']}"
        for item in wrong[:10]
    )


def clipped(text: str, max_bytes: int) -> str:
    """Return `text` in at most `max_bytes` bytes of valid UTF-8.

    >>> clipped("naïve", 3), clipped("naïve", 99)
    ('na', 'naïve')
    """
    whole = text.encode("utf-8", "backslashreplace")
    return whole[:max_bytes].decode("utf-8", "ignore")


def _code(value: object) -> ErrorCode:
    known = isinstance(value, str) and value in _CODES
    return ErrorCode(str(value)) if known else ErrorCode.UNKNOWN


def _suggested(error: Exception) -> int | None:
    if isinstance(error, RetryLater):
        return _whole_seconds(error.seconds)
    return _whole_seconds(error.suggested_retry_after) if isinstance(error, AgentError) else None


def _whole_seconds(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return min(max(0, math.ceil(value)), MAX_RETRY_AFTER_SECONDS)
