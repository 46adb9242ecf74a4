from typing import Any

import pytest
from hypothesis import given
from pydantic import BaseModel, ValidationError

from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    CapacityExceededError,
    ErrorCode,
    ExpiredMessageError,
    HandlerTimeoutError,
    InvalidPayloadError,
    NonRetryableError,
    PermissionDeniedError,
    RetryLater,
)
from amqp_agents.protocol.error_payload import (
    ErrorPayload,
    clipped,
    error_of,
    error_payload_of,
    read_error_payload,
    text_of,
)
from tests.unit.protocol.strategies import payloads


@pytest.mark.parametrize(
    ("error", "code", "retryable", "after"),
    [
        (HandlerTimeoutError("a", limit_seconds=1), ErrorCode.TIMEOUT, True, None),
        (ExpiredMessageError("late"), ErrorCode.TIMEOUT, False, None),
        (InvalidPayloadError("bad"), ErrorCode.INVALID_PAYLOAD, False, None),
        (PermissionDeniedError("no"), ErrorCode.PERMISSION_DENIED, False, None),
        (
            CapacityExceededError("full", suggested_retry_after=7),
            ErrorCode.CAPACITY_EXCEEDED,
            True,
            7,
        ),
        (ValueError("x"), ErrorCode.UNKNOWN, True, None),
        (RetryLater(2.1), ErrorCode.UNKNOWN, True, 3),
    ],
)
def test_an_error_says_itself_what_it_is(
    error: Exception, code: ErrorCode, retryable: bool, after: int | None
) -> None:
    payload = error_payload_of(error, failed_agent="quality_agent")
    assert (payload.code, payload.retryable, payload.suggested_retry_after) == (
        code,
        retryable,
        after,
    )
    assert payload.details["error"] == type(error).__name__
    assert payload.failed_agent == "quality_agent"
    assert payload.stack_trace is None


def test_a_failure_passed_on_names_where_it_came_from() -> None:
    error = AgentCommunicationError("full", failed_agent="b", code=ErrorCode.CAPACITY_EXCEEDED)
    payload = error_payload_of(error, failed_agent="a")
    assert (payload.failed_agent, payload.details["origin"]) == ("a", "b")
    assert payload.code is ErrorCode.CAPACITY_EXCEEDED


def test_an_error_that_fails_to_write_itself_is_reported() -> None:
    class Silent(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError("no text")

    payload = error_payload_of(Silent(), failed_agent="a")
    assert payload.message == "<exception str() failed>"
    assert payload.details == {"error": "Silent"}


def test_an_error_without_text_is_named() -> None:
    assert text_of(TimeoutError()) == "TimeoutError"


def test_texts_are_cut_within_characters_never_through_them() -> None:
    payload = error_payload_of(ValueError("订" * 5000), failed_agent="a", stack_trace="订" * 5000)
    assert payload.message == "订" * (2048 // 3)
    assert payload.stack_trace == "订" * (8192 // 3)
    assert clipped("a\ud800", 99) == "a\\ud800"


@pytest.mark.parametrize("after", [1.2, "soon", float("inf"), True, -3])
def test_an_error_class_declared_carelessly_still_makes_a_payload(after: Any) -> None:
    class CarelessError(AgentError):
        code = "NO_SUCH_CODE"  # type: ignore[assignment]
        suggested_retry_after = after

    payload = error_payload_of(CarelessError("x"), failed_agent="a")
    assert payload.code is ErrorCode.UNKNOWN
    assert payload.suggested_retry_after in (None, 0, 2)


def test_a_payload_becomes_the_error_to_raise() -> None:
    payload = ErrorPayload(
        code=ErrorCode.CAPACITY_EXCEEDED,
        message="full",
        details={"queue": 9},
        retryable=True,
        suggested_retry_after=5,
        failed_agent="b",
    )
    error = error_of(payload)
    assert type(error) is AgentCommunicationError
    assert (error.code, error.failed_agent, error.suggested_retry_after) == (
        ErrorCode.CAPACITY_EXCEEDED,
        "b",
        5,
    )
    assert error.details == {"queue": 9}
    assert type(error_of(payload.model_copy(update={"retryable": False}))) is NonRetryableError


def test_a_payload_comes_back_from_the_wire() -> None:
    payload = error_payload_of(HandlerTimeoutError("b", limit_seconds=1), failed_agent="b")
    written = payload.model_dump(mode="json")
    assert ErrorPayload(**written) == payload
    assert read_error_payload(written, failed_agent="x") == payload


@given(payloads)
def test_a_report_of_failure_never_fails_to_be_read(payload: dict[str, Any]) -> None:
    read = read_error_payload(payload, failed_agent="b")
    assert read.failed_agent
    error_of(read)


def test_what_is_strange_in_a_report_becomes_unknown() -> None:
    strange = {
        "code": ["x"],
        "message": 1,
        "details": "x",
        "retryable": "yes",
        "suggested_retry_after": "soon",
        "failed_agent": None,
        "stack_trace": {},
    }
    read = read_error_payload(strange, failed_agent="b")
    assert (read.code, read.retryable, read.failed_agent) == (ErrorCode.UNKNOWN, False, "b")


def test_an_endless_wait_that_is_suggested_is_cut() -> None:
    payload = read_error_payload({"suggested_retry_after": 10**400}, failed_agent="a")
    assert payload.suggested_retry_after == 2**31 - 1


def test_a_validation_error_is_told_by_its_fields_and_never_by_its_values() -> None:
    class Card(BaseModel):
        number: int

    with pytest.raises(ValidationError) as raised:
        Card.model_validate({"number": "4111-secret"})
    assert "number: Input should be a valid integer" in text_of(raised.value)
    assert "secret" not in text_of(raised.value)
