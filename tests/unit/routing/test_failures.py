import asyncio

import httpx
import pytest

from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    BrokerConnectionError,
    CapacityExceededError,
    CircuitOpenError,
    ConfigurationError,
    DependencyFailedError,
    ErrorCode,
    ExpiredMessageError,
    HandlerTimeoutError,
    InvalidPayloadError,
    NonRetryableError,
    PermissionDeniedError,
    RequestTimeoutError,
    RetryLater,
    SchemaMismatchError,
    StaleVersionError,
    UnroutableMessageError,
)
from amqp_agents.routing.failures import counts_as_failure, dependency_of, retry_after_of


class OrderUnknownError(AgentError):
    """A user's own error about one message."""


class ModelDownError(AgentError):
    code = ErrorCode.DEPENDENCY_FAILED
    dependency = "model:gpt-x"


def answered(status, headers=None):
    request = httpx.Request("POST", "https://api.example.org/v1/chat")
    response = httpx.Response(status, request=request, headers=headers)
    return httpx.HTTPStatusError("no", request=request, response=response)


def said(code, kind=AgentCommunicationError):
    return kind("no", failed_agent="pricing_agent", code=code)


MISTAKES = [
    InvalidPayloadError("bad"),
    SchemaMismatchError("version", received="9", accepted=["1"]),
    ExpiredMessageError("late"),
    PermissionDeniedError("no"),
    ConfigurationError("no such agent"),
    StaleVersionError("moved"),
    OrderUnknownError("4711"),
    said(ErrorCode.INVALID_PAYLOAD, NonRetryableError),
    said(ErrorCode.SCHEMA_MISMATCH),
    said(ErrorCode.PERMISSION_DENIED),
    said(ErrorCode.TIMEOUT, NonRetryableError),
    answered(400),
    answered(404),
    answered(422),
]
NOT_NOW = [
    RetryLater(5),
    CircuitOpenError("open"),
    BrokerConnectionError("gone"),
    UnroutableMessageError("nobody"),
    asyncio.CancelledError(),
    SystemExit(),
    ExceptionGroup("all bad", [InvalidPayloadError("bad"), RetryLater(1)]),
]
FAILURES = [
    KeyError("x"),
    TimeoutError(),
    DependencyFailedError("db"),
    CapacityExceededError("full"),
    HandlerTimeoutError("order_agent", limit_seconds=1),
    RequestTimeoutError("pricing_agent", timeout_seconds=1),
    ModelDownError("gone"),
    said(ErrorCode.TIMEOUT),
    said(ErrorCode.DEPENDENCY_FAILED, NonRetryableError),
    said(ErrorCode.UNKNOWN),
    answered(401),
    answered(429),
    answered(503),
    httpx.ConnectError("refused"),
    ExceptionGroup("mixed", [InvalidPayloadError("bad"), KeyError("x")]),
]


@pytest.mark.parametrize("error", MISTAKES, ids=repr)
def test_a_senders_mistake_does_not_count(error):
    assert not counts_as_failure(error)


@pytest.mark.parametrize("error", NOT_NOW, ids=repr)
def test_what_says_nothing_about_health_does_not_count(error):
    assert not counts_as_failure(error)


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_a_failure_of_the_agent_or_its_dependency_counts(error):
    assert counts_as_failure(error)


def test_the_nearest_mapped_class_names_the_dependency():
    mapping = {OSError: "disk", ConnectionError: "model:gpt-x"}
    assert dependency_of(ConnectionResetError(), mapping) == "model:gpt-x"
    assert dependency_of(PermissionError(), mapping) == "disk"
    assert dependency_of(ValueError(), mapping) is None


def test_an_error_may_name_its_dependency_itself():
    assert dependency_of(ModelDownError("gone")) == "model:gpt-x"


@pytest.mark.parametrize(
    "error", [said(ErrorCode.TIMEOUT), RequestTimeoutError("pricing_agent", timeout_seconds=1)]
)
def test_an_agent_that_was_asked_is_a_dependency(error):
    assert dependency_of(error) == "agent:pricing_agent"


def test_the_host_of_an_http_request_is_a_dependency_also_beneath_an_error_of_ours():
    assert dependency_of(answered(503)) == "http:api.example.org"
    ours = DependencyFailedError("model failed")
    ours.__cause__ = answered(503)
    assert dependency_of(ours) == "http:api.example.org"


def test_an_http_error_without_its_request_blames_the_agent():
    assert dependency_of(httpx.ConnectError("refused")) is None


def test_a_chain_of_causes_that_never_ends_is_left():
    first, second = KeyError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert dependency_of(first) is None
    assert retry_after_of(first, 0.0) is None


def test_a_name_from_outside_is_cut():
    error = ModelDownError("gone")
    error.dependency = "x" * 10_000
    assert dependency_of(error) == "x" * 128


def test_of_a_group_the_first_failure_that_counts_names_the_dependency():
    ignored = said(ErrorCode.INVALID_PAYLOAD)
    assert dependency_of(ExceptionGroup("g", [ignored, ModelDownError("gone")])) == "model:gpt-x"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("30", 30.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("9" * 400, 1e9),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header, seconds):
    assert retry_after_of(answered(503, {"Retry-After": header}), 60.0) == seconds


@pytest.mark.parametrize("value", [True, "x", float("nan"), float("inf"), None, object()])
def test_a_suggestion_that_is_no_number_is_none(value):
    error = ModelDownError("gone")
    error.suggested_retry_after = value
    assert retry_after_of(error, 0.0) is None
