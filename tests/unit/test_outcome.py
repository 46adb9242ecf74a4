import pytest

from amqp_agents.config import RetryPolicy
from amqp_agents.errors import (
    AgentError,
    BrokerConnectionError,
    CapacityExceededError,
    CircuitOpenError,
    ConfigurationError,
    DependencyFailedError,
    ErrorCode,
    ExpiredMessageError,
    HandlerTimeoutError,
    IllegalTransitionError,
    InvalidPayloadError,
    NonRetryableError,
    OutcomeUnknownError,
    PayloadConflictError,
    PermissionDeniedError,
    PublishRejectedError,
    RequestTimeoutError,
    RetryLater,
    SchemaMismatchError,
    StaleVersionError,
    UnroutableMessageError,
)
from amqp_agents.outcome import Ack, DeadLetter, Release, Retry, backoff_seconds, outcome_of

POLICY = RetryPolicy(max_attempts=3)


def judged(error: Exception, attempt: int = 1, life: float | None = None) -> Retry | DeadLetter:
    return outcome_of(error, attempt=attempt, policy=POLICY, life_seconds=life)


class UnspeakableError(Exception):
    """Fails to say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    "error",
    [
        InvalidPayloadError("bad"),
        SchemaMismatchError("version", received="9", accepted=["1"]),
        ExpiredMessageError("late"),
        PayloadConflictError("k", accepted="a", received="b"),
        PermissionDeniedError("no"),
        ConfigurationError("wrong"),
        UnroutableMessageError("nobody"),
        IllegalTransitionError("no"),
        NonRetryableError("no", failed_agent="b"),
        AgentError("of a user, as it comes"),
    ],
)
def test_what_trying_again_cannot_mend_is_given_up_at_once(error: Exception) -> None:
    assert judged(error) == DeadLetter(error)


@pytest.mark.parametrize(
    "error",
    [
        BrokerConnectionError("gone"),
        PublishRejectedError("full"),
        OutcomeUnknownError("who knows"),
        HandlerTimeoutError("a", limit_seconds=1),
        RequestTimeoutError("b", timeout_seconds=1),
        CapacityExceededError("full"),
        CircuitOpenError("open"),
        DependencyFailedError("model"),
        StaleVersionError("moved"),
        ZeroDivisionError("of nobody we know"),
        UnspeakableError(),
    ],
)
def test_what_may_be_mended_is_tried_again_until_the_attempts_are_spent(error: Exception) -> None:
    assert judged(error, attempt=1) == Retry(1.0, error)
    assert judged(error, attempt=2) == Retry(2.0, error)
    assert judged(error, attempt=3) == DeadLetter(error)
    assert judged(error, attempt=10**9) == DeadLetter(error)


def test_an_error_of_a_users_own_decides_by_its_class() -> None:
    class FlakyError(AgentError):
        retryable = True
        code = ErrorCode.DEPENDENCY_FAILED

    assert isinstance(judged(FlakyError()), Retry)


def test_not_now_spends_no_attempt_however_many_there_were() -> None:
    signal = RetryLater(30, "rate limit")
    assert judged(signal, attempt=99) == Retry(30, signal, counted=False)


def test_a_suggested_wait_goes_before_the_backoff() -> None:
    assert judged(CapacityExceededError("full", suggested_retry_after=17)).delay_seconds == 17  # type: ignore[union-attr]


@pytest.mark.parametrize("strange", [-1, float("nan"), float("inf"), "soon", None])
def test_a_suggestion_that_is_no_wait_is_passed_over(strange: object) -> None:
    error = CapacityExceededError("full", suggested_retry_after=strange)  # type: ignore[arg-type]
    assert judged(error) == Retry(1.0, error)


def test_a_suggestion_beyond_any_number_of_seconds_is_still_an_outcome() -> None:
    error = CapacityExceededError("full", suggested_retry_after=10**400)
    outcome = judged(error)
    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds >= 10**9


@pytest.mark.parametrize(
    "signal", [CapacityExceededError("full"), RetryLater(1.0), UnspeakableError()]
)
def test_a_wait_that_outlasts_the_message_is_not_waited_for(signal: Exception) -> None:
    outcome = judged(signal, life=1.0)
    assert isinstance(outcome, DeadLetter)
    assert isinstance(outcome.error, ExpiredMessageError)
    assert outcome.error.__cause__ is signal
    assert "the next attempt is due in 1 s, but the message expires in 1 s" in str(outcome.error)


def test_a_message_that_outlives_the_wait_is_tried_again() -> None:
    assert isinstance(judged(CapacityExceededError("full"), life=1.001), Retry)


def test_the_backoff_doubles_to_its_cap_and_never_beyond() -> None:
    policy = RetryPolicy(base_seconds=0.5, cap_seconds=3)
    waits = [backoff_seconds(attempt, policy) for attempt in (1, 2, 3, 4, 5, 10**9)]
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_outcomes_are_values() -> None:
    assert Ack() == Ack(reply=None, messages=(), ignored=False)
    assert Release("x") != Release("y")
    assert Retry(1.0, KeyError()) != Retry(1.0, KeyError())


@pytest.mark.parametrize("seconds", [0, 0.2, 1])
def test_not_now_is_at_least_a_second(seconds: float) -> None:
    error = RetryLater(seconds)
    outcome = outcome_of(error, attempt=1, policy=RetryPolicy(), life_seconds=None)
    assert outcome == Retry(1.0, error, counted=False)
