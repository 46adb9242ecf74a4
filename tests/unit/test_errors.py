import inspect
import re

import pytest

from amqp_agents import errors
from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    CapacityExceededError,
    DuplicateAgentError,
    ErrorCode,
    HandlerTimeoutError,
    NonRetryableError,
    PayloadConflictError,
    ProtocolError,
    RequestTimeoutError,
    RetryLater,
    SchemaMismatchError,
    TopologyConflictError,
    TopologyMissingError,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, AgentError) and kind is not AgentError
]


def drawn_tree() -> dict[str, str]:
    """Child to parent, as the module's docstring draws it."""
    above: list[str] = []
    parents = {}
    for line in (errors.__doc__ or "").splitlines():
        drawn = re.match(r"((?:│   |    )*)(?:├──|└──)? ?([A-Z][A-Za-z]+Error)\b", line)
        if drawn is None:
            continue
        depth = len(drawn[1]) // 4 + (1 if "──" in line else 0)
        above[depth:] = [drawn[2]]
        if depth:
            parents[drawn[2]] = above[depth - 1]
    return parents


def test_the_drawn_tree_is_the_tree() -> None:
    assert drawn_tree() == {kind.__name__: kind.__mro__[1].__name__ for kind in CLASSES}


def test_the_codes_on_the_wire_are_these_seven() -> None:
    assert {code.value for code in ErrorCode} == {
        "AGENT_TIMEOUT",
        "CAPACITY_EXCEEDED",
        "INVALID_PAYLOAD",
        "SCHEMA_MISMATCH",
        "DEPENDENCY_FAILED",
        "PERMISSION_DENIED",
        "UNKNOWN",
    }


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_it_is_and_whether_trying_again_can_help(
    kind: type[AgentError],
) -> None:
    assert isinstance(kind.code, ErrorCode)
    assert isinstance(kind.retryable, bool)
    assert (kind.__doc__ or "").strip()


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if issubclass(kind, ProtocolError)])
def test_a_message_at_fault_is_never_tried_again(kind: type[AgentError]) -> None:
    assert kind.retryable is False


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (DuplicateAgentError("a"), "agent 'a' is declared twice"),
        (DuplicateAgentError("a", intent="i"), "intent 'i' of agent 'a' is declared twice"),
        (TopologyMissingError(["x", "y"], remedy="apply it"), "missing on the broker: x, y; apply"),
        (TopologyConflictError(["x is y"], remedy="see"), "declared differently: x is y; see"),
        (
            SchemaMismatchError("schema_version", received="9", accepted=["1", "2"]),
            "schema_version '9' is not accepted; accepted: 1, 2",
        ),
        (
            PayloadConflictError("key", accepted="one", received="two"),
            "'key' was accepted with one and arrived again with two",
        ),
        (HandlerTimeoutError("a", limit_seconds=2.50), "agent 'a' did not finish within 2.5 s"),
        (RequestTimeoutError("a", timeout_seconds=30), "no answer from 'a' within 30 s"),
    ],
)
def test_a_sentence_names_what_came_and_what_was_expected(error: AgentError, sentence: str) -> None:
    assert sentence in str(error)


def test_no_answer_in_time_is_a_timeout_to_those_who_know_none_of_our_errors() -> None:
    assert issubclass(RequestTimeoutError, TimeoutError)


def test_an_answered_error_carries_its_code_and_who_failed() -> None:
    error = AgentCommunicationError(
        "busy", failed_agent="b", code=ErrorCode.CAPACITY_EXCEEDED, suggested_retry_after=7
    )
    assert (error.code, error.failed_agent) == (ErrorCode.CAPACITY_EXCEEDED, "b")
    assert (error.suggested_retry_after, error.retryable, error.details) == (7, True, {})


def test_an_answered_error_that_cannot_be_mended_by_asking_again_says_so() -> None:
    error = NonRetryableError("no", failed_agent="b")
    assert (error.retryable, error.code) == (False, ErrorCode.UNKNOWN)


def test_a_full_agent_may_say_when_to_come_back() -> None:
    assert CapacityExceededError("full", suggested_retry_after=3).suggested_retry_after == 3
    assert CapacityExceededError("full").suggested_retry_after is None


def test_not_now_is_a_signal_and_no_error_of_an_agent() -> None:
    assert not issubclass(RetryLater, AgentError)
    assert str(RetryLater(2, "rate limit")) == "rate limit; again in 2 s"


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), -float("inf")])
def test_not_now_needs_a_time_that_can_come(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds from 0 on"):
        RetryLater(seconds)
