"""`amqp-agents dlq`: looking loses nothing, replay removes exactly what it sent back."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from amqp_agents.cli import app
from tests.integration.cli.program import Program
from tests.nodes.endpoint import Endpoint

pytestmark = pytest.mark.rabbitmq

EVENTS = """\
from pathlib import Path

from pydantic import BaseModel

from amqp_agents import Agent, AgentApp, DependencyFailedError, RetryPolicy


class Ticket(BaseModel):
    ticket: str


class Refused(DependencyFailedError):
    retryable = False


first, second = Agent("first_agent"), Agent("second_agent")


@first.on_event("ticket.closed")
async def fails(ticket: Ticket) -> None:
    print(f"first got {ticket.ticket}", flush=True)
    if not Path("mended").exists():
        raise Refused("the order system is down")


@second.on_event("ticket.closed")
async def works(ticket: Ticket) -> None:
    print(f"second got {ticket.ticket}", flush=True)


app = AgentApp([first, second])
"""


def letters(program: Program, *arguments: str) -> list[dict[str, Any]]:
    ended = program("dlq", "list", *arguments, "--json")
    assert ended.code == 0, ended.err
    return list(ended.json["dead_letters"])


def dead(program: Program, count: int) -> list[str]:
    """Have the agent give up `count` messages; return their ids, oldest first."""
    running = program.start("run", "--declare", "my_agents:app")
    running.until("ready")
    ids = []
    for number in range(count):
        bad = json.dumps({"text": [number]})
        ended = program("publish", bad, "--to", "quality_agent", "--json")
        ids.append(ended.json["message_id"])
    running.until("delivery_dead", times=count)
    running.signal()
    assert running.ended()[0] == 0
    return ids


def test_looking_fifty_times_loses_nothing(program: Program) -> None:
    ids = dead(program, 2)
    runner = CliRunner(env=program.environment)
    for _ in range(50):
        ended = runner.invoke(app, ["dlq", "list", "quality_agent", "--json"])
        found = json.loads(ended.stdout)["dead_letters"]
        assert [each["message_id"] for each in found] == ids
    assert {each["code"] for each in found} == {"INVALID_PAYLOAD"}
    assert {each["attempts"] for each in found} == {1}


def test_a_list_without_an_agent_shows_every_agents_letters_in_plain_columns(
    program: Program,
) -> None:
    (only,) = dead(program, 1)
    ended = program("dlq", "list")
    header, line = ended.out.splitlines()
    assert header.split()[:3] == ["agent", "message", "id"]
    assert only in line
    assert "payload is not a Draft" in line
    assert "\x1b" not in ended.out


def test_agents_come_from_the_topology_where_no_management_api_answers(program: Program) -> None:
    dead(program, 1)
    without = {"AMQP_AGENTS_MANAGEMENT_URL": "http://127.0.0.1:9"}
    assert len(letters(program, "quality_agent")) == 1
    ended = program("dlq", "list", "--topology", "my_agents:app", "--json", env=without)
    assert len(ended.json["dead_letters"]) == 1
    assert set(ended.json["totals"]) == {"quality_agent", "blocking_agent"}
    refused = program("dlq", "list", env=without)
    assert refused.code == 1
    assert "name one, or --topology" in refused.err


def test_show_tells_reason_headers_and_body(program: Program) -> None:
    (only,) = dead(program, 1)
    ended = program("dlq", "show", "quality_agent", only)
    assert ended.code == 0
    assert "reason       INVALID_PAYLOAD (InvalidPayloadError)" in ended.out
    assert "aa-fault-queue: agent.quality_agent" in ended.out
    assert '"text": [' in ended.out
    told = program("dlq", "show", "quality_agent", only, "--json").json
    assert told["body"]["payload"] == {"text": [0]}
    assert len(letters(program, "quality_agent")) == 1

    absent = program("dlq", "show", "quality_agent", "nothing")
    assert absent.code == 1
    assert "amqp-agents dlq list quality_agent" in absent.err


def test_replay_of_one_removes_that_one_and_leaves_the_others(program: Program) -> None:
    first, second, third = dead(program, 3)
    ended = program("dlq", "replay", "quality_agent", second)
    assert ended.code == 0, ended.err
    assert [each["message_id"] for each in letters(program, "quality_agent")] == [first, third]

    running = program.start("run", "my_agents:app")
    running.until(f"message_id={second}")  # it fails again, under the same id
    running.signal()
    running.ended()
    left = letters(program, "quality_agent")
    assert [each["message_id"] for each in left] == [first, third, second]
    assert left[-1]["attempts"] == 1


def test_replay_of_all_asks_first(program: Program) -> None:
    dead(program, 2)
    unanswered = program("dlq", "replay", "quality_agent", "--all")
    assert unanswered.code == 1
    assert "--yes" in unanswered.err
    declined = program("dlq", "replay", "quality_agent", "--all", stdin="n\n")
    assert declined.code == 1
    assert len(letters(program, "quality_agent")) == 2

    agreed = program("dlq", "replay", "quality_agent", "--all", "--json", stdin="y\n")
    assert agreed.json == {"agent": "quality_agent", "replayed": 2, "message_id": None}
    assert letters(program, "quality_agent") == []


def test_replay_keeps_to_its_rate(program: Program) -> None:
    dead(program, 3)
    ended = program("dlq", "replay", "quality_agent", "--all", "--yes", "--rate", "2")
    assert ended.code == 0
    assert ended.seconds > 1.0
    assert "replayed 3 dead letters" in ended.out


def test_a_replay_ends_although_everything_fails_again(program: Program) -> None:
    dead(program, 3)
    running = program.start("run", "my_agents:app")
    running.until("ready")
    ended = program("dlq", "replay", "quality_agent", "--all", "--yes", limit_seconds=20)
    assert ended.code == 0, ended.err
    running.until("delivery_dead", times=3)
    assert len(letters(program, "quality_agent")) == 3


def test_what_rabbitmq_expired_is_shown_so_and_lives_again_after_a_replay(
    program: Program,
) -> None:
    assert program("topology", "apply", "my_agents:app").code == 0
    program("publish", '{"text": "late"}', "--to", "quality_agent", "--ttl", "1")
    found = expired(program)
    assert found["code"] == "expired"
    assert found["by_broker"] is True
    assert found["message"] == "RabbitMQ: it outlived its time to live in the inbox"
    assert found["routing_key"] == "quality_agent"

    running = program.start("run", "my_agents:app")
    running.until("ready")
    assert program("dlq", "replay", "quality_agent", found["message_id"]).code == 0
    running.until("finished late")
    assert letters(program, "quality_agent") == []


def expired(program: Program) -> dict[str, Any]:
    for _ in range(20):
        if found := letters(program, "quality_agent"):
            return found[0]
    raise AssertionError("it never expired")


def test_a_replay_reaches_the_failed_agent_only(program: Program) -> None:
    (program.folder / "events.py").write_text(EVENTS)
    running = program.start("run", "--declare", "events:app")
    running.until("ready")
    program("publish", '{"ticket": "T-1"}', "--event", "ticket.closed")
    running.until("delivery_dead")
    running.until("second got T-1")
    (found,) = letters(program)
    assert (found["agent"], found["message"]) == ("first_agent", "the order system is down")
    assert found["routing_key"] == "event.ticket.closed"

    (program.folder / "mended").touch()
    assert program("dlq", "replay", "first_agent", "--all", "--yes").code == 0
    running.until("first got T-1", times=2)
    running.signal()
    assert running.ended()[0] == 0
    assert running.said.count("second got T-1") == 1
    assert letters(program) == []


def test_a_replay_without_an_inbox_keeps_the_dead_letter(
    program: Program, rabbitmq: Endpoint
) -> None:
    (only,) = dead(program, 1)
    vhost = program.environment["AMQP_AGENTS_URL"].rpartition("/")[2]
    rabbitmq.management.call("DELETE", f"queues/{vhost}/agent.quality_agent")
    ended = program("dlq", "replay", "quality_agent", only)
    assert ended.code == 1
    assert "missing on the broker: queue agent.quality_agent" in ended.err
    assert len(letters(program, "quality_agent")) == 1


def test_a_queue_that_would_drop_what_is_looked_at_is_left_alone(
    program: Program, rabbitmq: Endpoint
) -> None:
    (only,) = dead(program, 1)
    vhost = program.environment["AMQP_AGENTS_URL"].rpartition("/")[2]
    foreign = {"pattern": ".*", "definition": {"delivery-limit": 2}, "priority": 50}
    rabbitmq.management.call("PUT", f"policies/{vhost}/foreign", foreign)
    for command in (["list"], ["show", only], ["replay", only]):
        ended = program("dlq", command[0], "quality_agent", *command[1:])
        assert ended.code == 1
        assert "agent.quality_agent.dlq has a delivery limit of 2" in ended.err
    rabbitmq.management.call("DELETE", f"policies/{vhost}/foreign")
    assert [each["message_id"] for each in letters(program, "quality_agent")] == [only]
