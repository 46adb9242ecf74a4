"""How errors, logs and tables are told."""

import json
import logging
import re

import pytest
from rich.console import Console

from amqp_agents.cli import output
from amqp_agents.cli.error_text import error_json, sentences_of
from amqp_agents.cli.logs import JsonLines, Lines
from amqp_agents.errors import (
    AgentCommunicationError,
    BrokerConnectionError,
    ConfigurationError,
    ErrorCode,
    NonRetryableError,
)

SECRETS = [
    "amqp://guest:s3cret@rabbit:5672/",
    "amqps://a%40b:s3cret@rabbit/x",
    "http://admin:s3cret@rabbit:15672/api",
    'url="amqp://:s3cret@rabbit/"',
    "amqp://guest:s3@cret@rabbit/",
    "postgresql+asyncpg://me:s3cret@db/agents",
]


@pytest.mark.parametrize("text", SECRETS)
def test_no_password_of_a_url_is_ever_told(text: str) -> None:
    (sentence,) = sentences_of(ConfigurationError(f"cannot use {text}"))
    assert "cret" not in sentence
    record = logging.LogRecord("x", logging.INFO, "", 0, "at %s", (text,), None)
    assert "cret" not in Lines().format(record)
    assert "cret" not in JsonLines().format(record)


def test_a_group_of_errors_is_told_once_each() -> None:
    lost = BrokerConnectionError("the connection was lost")
    group = ExceptionGroup(
        "several", [lost, ExceptionGroup("more", [ConfigurationError("x"), lost])]
    )
    assert sentences_of(group) == ("the connection was lost", "x")


def test_an_error_answer_says_what_can_be_done() -> None:
    def told(error: AgentCommunicationError) -> str:
        return sentences_of(error)[0]

    wrong = NonRetryableError("no text", failed_agent="a", code=ErrorCode.INVALID_PAYLOAD)
    assert "correct what was sent" in told(wrong)
    busy = AgentCommunicationError("busy", failed_agent="a", suggested_retry_after=9)
    assert "call again in 9 s" in told(busy)
    failed = AgentCommunicationError("boom", failed_agent="a")
    assert "amqp-agents dlq list a" in told(failed)
    assert error_json(failed)["error"]["retryable"] is True


def test_control_characters_of_others_never_reach_a_terminal() -> None:
    (sentence,) = sentences_of(ConfigurationError("\x1b]0;title\x07"))
    assert "\x1b" not in sentence
    assert "\x07" not in sentence


def test_json_logs_carry_the_fields_of_an_event() -> None:
    record = logging.LogRecord("amqp_agents", logging.WARNING, "", 0, "delivery_dead a=1", (), None)
    record.event, record.fields = "delivery_dead", {"agent": "quality_agent", "attempt": 2}
    told = json.loads(JsonLines().format(record))
    assert told["event"] == "delivery_dead"
    assert told["attempt"] == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*\+00:00", told["time"])


def test_a_table_is_plain_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    output.say_table(["agent", "message"], [["a", long], ["quality_agent", "[red]b[/red]\x1b[2J"]])
    assert capsys.readouterr().out.splitlines() == [
        "agent          message",
        f"a              {long}",
        "quality_agent  [red]b[/red]\\x1b[2J",
    ]


@pytest.mark.parametrize("width", [30, 60, 120])
def test_a_table_on_a_terminal_cuts_no_id(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    screen = Console(force_terminal=True, width=width, markup=False, highlight=False)
    monkeypatch.setattr(output, "console", lambda: screen)
    with screen.capture() as shown:
        output.say_table(["id", "message"], [["0123456789" * 4, f"[red]b[/red] {'x ' * 40}"]])
    assert "0123456789" * 4 in shown.get()
    assert "[red]b[/red]" in shown.get()
    assert ("┃" in shown.get()) is (width > 72)


def test_no_bar_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("replay", 3) as advance:
        advance()
    assert capsys.readouterr() == ("", "")
