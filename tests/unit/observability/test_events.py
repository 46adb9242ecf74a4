import logging
import re
from pathlib import Path

import pytest

import amqp_agents
from amqp_agents.observability import Event, log_event
from amqp_agents.observability import events as module

logger = logging.getLogger("amqp_agents")


def test_the_drawn_table_is_what_is_logged() -> None:
    drawn = re.findall(r"^([a-z_]+) +([A-Z]+) {2,}[a-z_]", module.__doc__ or "", re.MULTILINE)
    assert drawn == [(event.value[0], logging.getLevelName(event.value[1])) for event in Event]


def test_brokers_log_events_of_the_table_and_nothing_else() -> None:
    brokers = Path(amqp_agents.__file__).parent / "brokers"
    sources = {path: path.read_text() for path in brokers.rglob("*.py")}
    assert "log_event(" in "".join(sources.values())
    plain = re.compile(r"\blog(ger|ging)?\.(debug|info|warning|error|exception|critical|log)\(")
    assert [path.name for path, text in sources.items() if plain.search(text)] == []


def test_a_line_is_readable_and_its_fields_are_structured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_event(logger, Event.REPLY_UNDELIVERED, agent="a", attempt=2, reason=None)
    (record,) = caplog.records
    assert record.getMessage() == "reply_undelivered agent=a attempt=2"
    assert record.levelno == logging.WARNING
    assert record.event == "reply_undelivered"  # type: ignore[attr-defined]
    assert record.fields == {"agent": "a", "attempt": 2}  # type: ignore[attr-defined]


def test_what_a_message_holds_cannot_look_like_a_line_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_event(logger, Event.DELIVERY_DEAD, reason="x\ndelivery_dead agent=boss\r\n%s")
    (record,) = caplog.records
    assert record.getMessage() == "delivery_dead reason=x\\ndelivery_dead agent=boss\\r\\n%s"


def test_the_traceback_of_an_error_follows_its_line(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x")
    log_event(logger, Event.TASK_DIED, error=error, task="link", reason="ValueError")
    (record,) = caplog.records
    assert record.getMessage() == "task_died task=link reason=ValueError"
    assert record.exc_info == (ValueError, error, None)
    assert record.fields == {"task": "link", "reason": "ValueError"}  # type: ignore[attr-defined]


def test_long_values_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    log_event(logger, Event.DELIVERY_DEAD, reason="x" * 10_000)
    assert len(caplog.records[0].getMessage()) < 600


def test_what_is_not_logged_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("nobody asked for it")

    with caplog.at_level(logging.CRITICAL, logger="amqp_agents"):
        log_event(logger, Event.DELIVERY_DEAD, reason=Costly())
    assert caplog.records == []
