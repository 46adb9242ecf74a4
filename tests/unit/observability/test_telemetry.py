import logging
from typing import Any

import pytest

from amqp_agents.clock import ManualClock
from amqp_agents.errors import AgentError, CapacityExceededError, ErrorCode, PublishRejectedError
from amqp_agents.observability import MemoryJournal, Telemetry
from amqp_agents.observability.telemetry import code_of, message_id_of
from amqp_agents.outcome import Ack, DeadLetter, Outcome, Release, Retry
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol import AgentMessage
from amqp_agents.protocol.properties import Properties

MESSAGE = AgentMessage(sender="s", recipient="a", type="message", trace_id="t")
ARRIVED = Delivery(b"", Properties(headers={"aa-attempt": 2}), "agent.a", message=MESSAGE)


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(journal=MemoryJournal(), clock=ManualClock(frozen=True))


def told(telemetry: Telemetry) -> list[tuple[str, str, str]]:
    journal = telemetry.journal
    assert isinstance(journal, MemoryJournal)
    return [(entry.what, entry.by, entry.note) for entry in journal.chain("t")]


@pytest.mark.parametrize(
    ("outcome", "what", "note", "event"),
    [
        (Ack(), "handled", "", None),
        (Ack(ignored=True), "ignored", "", None),
        (
            Retry(4.0, ValueError("x")),
            "retried",
            "attempt 2, again in 4 s: x",
            ("delivery_retried", logging.INFO),
        ),
        (
            DeadLetter(CapacityExceededError("full")),
            "dead-lettered",
            "CAPACITY_EXCEEDED: full",
            ("delivery_dead", logging.WARNING),
        ),
        (Release("stopping"), "released", "stopping", ("delivery_released", logging.INFO)),
    ],
)
def test_an_outcome_is_counted_logged_and_journalled_once(
    outcome: Outcome,
    what: str,
    note: str,
    event: tuple[str, int] | None,
    telemetry: Telemetry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="amqp_agents"):
        telemetry.handled("a", ARRIVED, outcome, 0.1)
    assert told(telemetry) == [(what, "a", note)]
    assert telemetry.metrics.deliveries.labels("a", what)._value.get() == 1
    logged = [(record.event, record.levelno) for record in caplog.records]  # type: ignore[attr-defined]
    assert logged == ([] if event is None else [event])


def test_given_up_messages_are_counted_by_code(telemetry: Telemetry) -> None:
    telemetry.handled("a", ARRIVED, DeadLetter(CapacityExceededError("full")), 0.1)
    counted = telemetry.metrics.dead_letters.labels("a", "CAPACITY_EXCEEDED")
    assert counted._value.get() == 1


def test_a_payload_is_never_logged(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    secret = MESSAGE.model_copy(update={"payload": {"card": "hunter2"}})
    arrived = Delivery(b'{"card": "hunter2"}', Properties(), "agent.a", message=secret)
    with caplog.at_level(logging.DEBUG, logger="amqp_agents"):
        telemetry.handled("a", arrived, Release("stopping"), 0.1)
        telemetry.ignored("a", arrived, "its own event")
        telemetry.unsettled("a", arrived, "no broker")
        telemetry.settlement_lost("a", arrived)
        telemetry.reply_undelivered("a", secret, "agent.reply.x", "gone")
    assert len(caplog.records) == 5
    assert "hunter2" not in caplog.text


def test_every_publish_that_was_confirmed_is_counted(telemetry: Telemetry) -> None:
    telemetry.confirmed("agent.dlx")
    telemetry.publish_failed("m", "agent.dlx", PublishRejectedError("full"))
    telemetry.publish_repeated("m", "agent.dlx", PublishRejectedError("full"))
    publishes = telemetry.metrics.publishes
    assert publishes.labels("agent.dlx", "confirmed")._value.get() == 1
    assert publishes.labels("agent.dlx", "PublishRejectedError")._value.get() == 2


def test_on_another_clock_it_is_the_same_telemetry(telemetry: Telemetry) -> None:
    other = telemetry.on_clock(ManualClock(frozen=True))
    assert other.metrics is telemetry.metrics
    assert other.journal is telemetry.journal


def test_without_a_journal_nothing_is_kept() -> None:
    telemetry = Telemetry()
    telemetry.published(MESSAGE, "agent.direct", "a")
    assert telemetry.journal is None


class OddlyCodedError(AgentError):
    """A user's own, whose code is none."""

    code = ("RATE", "LIMITED")  # type: ignore[assignment]


class CodedByText(AgentError):  # noqa: N818 - its code is the point
    """A user's own, whose code is one of ours, as text."""

    code = "AGENT_TIMEOUT"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CapacityExceededError("x"), ErrorCode.CAPACITY_EXCEEDED),
        (CodedByText("x"), ErrorCode.TIMEOUT),
        (OddlyCodedError("x"), ErrorCode.UNKNOWN),
        (KeyError("x"), ErrorCode.UNKNOWN),
        (KeyboardInterrupt(), ErrorCode.UNKNOWN),
    ],
)
def test_every_error_has_a_code(error: BaseException, code: ErrorCode) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize(
    ("arrived", "name"),
    [
        ({"message": MESSAGE}, MESSAGE.message_id),
        ({"properties": Properties(headers={"aa-message-id": "h"}, message_id="p")}, "h"),
        ({"properties": Properties(headers={"aa-message-id": 7}, message_id="p")}, "p"),
        ({"properties": Properties()}, None),
    ],
)
def test_a_message_is_named_as_far_as_it_can_be_known(
    arrived: dict[str, Any], name: str | None
) -> None:
    given: dict[str, Any] = {"properties": Properties()} | arrived
    assert message_id_of(Delivery(body=b"", queue="agent.a", **given)) == name
