"""`amqp-agents run`: start, answer, drain, and every way of being told to end."""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.cli.program import Program, Running
from tests.nodes.endpoint import Endpoint

pytestmark = pytest.mark.rabbitmq

GRACE_SECONDS = 2.0


def serving(program: Program, *options: str) -> Running:
    running = program.start(
        "run", "--declare", "my_agents:app", f"--grace={GRACE_SECONDS}", *options
    )
    running.until("ready")
    return running


def test_a_declared_app_answers_a_call_and_ends_with_0_at_sigterm(program: Program) -> None:
    running = serving(program)

    answer = program("call", "quality_agent", '{"text": "refund please"}', "--json")
    assert (answer.code, answer.json["risk_level"]) == (0, "high")

    running.signal()
    code, seconds = running.ended()
    assert code == 0
    assert seconds < GRACE_SECONDS


def test_the_start_tells_agents_place_and_settings_but_no_password(
    program: Program, vhost_url: str
) -> None:
    running = serving(program)
    said = running.said
    assert "agents    quality_agent, blocking_agent" in said
    assert vhost_url.rpartition("/")[2] in said
    assert "user 'guest'" in said
    assert "settings by policies (management API)" in said
    assert "delivery-limit=100" in said
    assert "guest:guest" not in said


def test_without_declare_a_missing_topology_is_named_with_its_mend(program: Program) -> None:
    ended = program("run", "my_agents:app")
    assert ended.code == 1
    assert "missing on the broker: exchange agent.lost" in ended.err
    assert "amqp-agents topology apply" in ended.err
    assert "Traceback" not in ended.err


def test_running_work_is_finished_before_the_end(program: Program) -> None:
    running = serving(program, "--grace=20")
    asked = program.start("call", "quality_agent", '{"text": "slow", "seconds": 1.5}')
    running.until("started slow")
    running.signal(signal.SIGINT)
    assert running.ended()[0] == 0
    assert "finished slow" in running.said
    assert asked.ended()[0] == 0
    assert "risk_level" in asked.said


def test_work_beyond_the_grace_goes_back_and_the_exit_code_is_still_0(program: Program) -> None:
    running = serving(program)
    program("publish", '{"text": "long", "seconds": 600}', "--to", "quality_agent")
    running.until("started long")
    running.signal()
    code, seconds = running.ended()
    assert code == 0
    assert seconds < GRACE_SECONDS + 2

    again = serving(program)
    again.until("started long")


def test_a_handler_that_blocks_a_thread_does_not_hold_up_the_end(program: Program) -> None:
    running = serving(program)
    program("publish", '{"text": "stuck", "seconds": 600}', "--to", "blocking_agent")
    running.until("started stuck")
    running.signal()
    code, seconds = running.ended()
    assert code == 0
    assert seconds < GRACE_SECONDS + 2


def test_a_second_signal_ends_at_once_with_1(program: Program) -> None:
    running = serving(program, "--grace=60")
    program("publish", '{"text": "long", "seconds": 600}', "--to", "quality_agent")
    running.until("started long")
    running.signal()
    running.until("drain_started")
    running.signal()
    code, seconds = running.ended()
    assert code == 1
    assert seconds < 2.5


def test_a_dead_broker_at_the_start_is_one_sentence(offline: Program) -> None:
    ended = offline("run", "my_agents:app", env={"AMQP_AGENTS_CONNECT_TIMEOUT_SECONDS": "1"})
    assert ended.code == 1
    assert "error: cannot reach RabbitMQ at 127.0.0.1:9" in ended.err
    assert "AMQP_AGENTS_URL" in ended.err
    assert "Traceback" not in ended.err
    assert "pa55word" not in ended.out + ended.err


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("options", [[], ["--workers=2"], ["--reload"]], ids=str)
def test_a_signal_while_connecting_ends_with_0(
    offline: Program, number: int, options: list[str]
) -> None:
    with black_hole() as port:
        running = offline.start(
            "run",
            "my_agents:app",
            "--log-level=debug",
            *options,
            env={
                "AMQP_AGENTS_URL": f"amqp://guest:pa55word@127.0.0.1:{port}/",
                "AMQP_AGENTS_CONNECT_TIMEOUT_SECONDS": "60",
            },
        )
        running.until("Using selector")  # asyncio, once its loop is there
        running.signal(number)
        code, seconds = running.ended()
    assert code == 0
    assert seconds < 4
    assert "pa55word" not in running.said


def test_a_signal_before_connecting_ends_with_0(offline: Program) -> None:
    (offline.folder / "slow_import.py").write_text(
        "print('importing', flush=True)\nimport time\ntime.sleep(60)\n"
    )
    running = offline.start("run", "slow_import:app")
    running.until("importing")
    running.signal()
    code, seconds = running.ended()
    assert code == 0
    assert seconds < 2


def test_agents_run_without_their_policies_and_say_so(program: Program, rabbitmq: Endpoint) -> None:
    assert program("topology", "apply", "my_agents:app").code == 0
    vhost = program.environment["AMQP_AGENTS_URL"].rpartition("/")[2]
    rabbitmq.management.call("DELETE", f"policies/{vhost}/agent.inbox")
    running = program.start("run", "my_agents:app")
    running.until("ready")
    running.until("warning: policy agent.inbox is missing")


def test_without_management_limits_become_arguments_and_the_start_says_so(
    program: Program,
) -> None:
    without = {"AMQP_AGENTS_MANAGEMENT_URL": "http://127.0.0.1:9"}
    running = program.start("run", "--declare", "my_agents:app", env=without)
    said = running.until("ready")
    assert "settings by arguments" in said
    running.until("warning: without a management API")


def test_logs_are_json_lines_when_asked_for(program: Program) -> None:
    running = serving(program, "--log-json")
    program("call", "quality_agent", '{"text": 3}')
    running.until('"event": "delivery_dead"')
    running.signal()
    running.ended()
    lines = [line for line in running.said.splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]
    dead = next(each for each in events if each.get("event") == "delivery_dead")
    assert (dead["agent"], dead["level"], dead["attempt"]) == ("quality_agent", "warning", 1)
