import logging
import re

import pytest

from amqp_agents.observability import Event, log_event
from amqp_agents.observability import events as module

logger = logging.getLogger("amqp_agents")


def test_the_drawn_table_is_what_is_logged() -> None:
    drawn = re.findall(r"^([a-z_]+) +([A-Z]+) {2,}[a-z_]", module.__doc__ or "", re.MULTILINE)
    assert drawn == [(event.value[0], logging.getLevelName(event.value[1])) for event in Event]


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
