"""`run --workers` and `run --reload`: processes under a supervisor."""

import json
import os
import re
import signal
from typing import Any

import pytest

from tests.integration.cli.conftest import AGENTS
from tests.integration.cli.program import Program, Running
from tests.nodes.processes import Process

pytestmark = pytest.mark.rabbitmq

CONSUMING = "queue=agent.quality_agent "
GRACE_SECONDS = 2.0


def started(running: Running) -> list[int]:
    """The pids of all workers started so far."""
    return [int(pid) for pid in re.findall(r"worker_started worker=\d+ pid=(\d+)", running.said)]


def supervised(program: Program, *options: str, consumers: int) -> Running:
    grace = f"--grace={GRACE_SECONDS}"
    running = program.start("run", "--declare", "my_agents:app", grace, *options)
    running.until(CONSUMING, times=consumers)
    return running


def answering_pids(program: Program, calls: int) -> set[int]:
    answers: list[Any] = []
    for _ in range(calls):
        ended = program("call", "quality_agent", '{"text": "x"}', "--json")
        assert ended.code == 0, ended.err
        answers.append(json.loads(ended.out)["pid"])
    return set(answers)


def gone(pid: int) -> bool:
    """Whether the process ends within a moment."""
    return Process.of(pid).wait_gone(10.0)


def test_workers_share_the_work_and_drain_with_0(program: Program) -> None:
    running = supervised(program, "--workers=2", consumers=2)
    said = running.said
    assert "agents    quality_agent, blocking_agent" in said
    assert "workers   2" in said
    pids = started(running)
    assert answering_pids(program, 3) <= set(pids)

    running.signal()
    code, seconds = running.ended()
    assert code == 0
    assert seconds < 4
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize(("option", "workers"), [("--workers=2", 2), ("--reload", 1)])
def test_every_worker_drains_within_the_grace_that_was_asked_for(
    program: Program, option: str, workers: int
) -> None:
    running = supervised(program, option, consumers=workers)
    for _ in range(workers):
        program("publish", '{"text": "long", "seconds": 600}', "--to", "quality_agent")
    running.until("started long", times=workers)
    running.signal()
    code, seconds = running.ended()
    assert code == 0
    assert seconds < GRACE_SECONDS + 1.8  # beyond that the supervisor kills them
    assert running.said.count("drain_finished") == workers


def test_a_worker_that_dies_is_started_again(program: Program) -> None:
    running = supervised(program, "--workers=1", consumers=1)
    (first,) = started(running)
    os.kill(first, signal.SIGKILL)
    running.until("worker_died worker=1")
    running.until(CONSUMING, times=2)
    assert answering_pids(program, 1) == {started(running)[1]}
    assert "code=-9 restart_after=0.5 s" in running.said


def test_a_second_signal_ends_all_workers_at_once(program: Program) -> None:
    running = supervised(program, "--workers=2", "--grace=60", consumers=2)
    program("publish", '{"text": "long", "seconds": 600}', "--to", "quality_agent")
    running.until("started long")
    running.signal()
    running.until("drain_started", times=1)
    running.signal()
    code, seconds = running.ended()
    assert code == 1
    assert seconds < 4
    assert all(gone(pid) for pid in started(running))


def test_workers_end_when_their_supervisor_is_killed(program: Program) -> None:
    running = supervised(program, "--workers=1", consumers=1)
    running.signal(signal.SIGKILL)
    running.ended()
    assert all(gone(pid) for pid in started(running))


def test_a_mistake_of_the_app_is_told_before_any_worker_starts(program: Program) -> None:
    ended = program("run", "nowhere:app", "--workers=2")
    assert ended.code == 1
    assert ended.err.count("error: there is no module 'nowhere'") == 1
    assert "worker_started" not in ended.err


def test_a_changed_source_restarts_the_worker(program: Program) -> None:
    running = supervised(program, "--reload", consumers=1)
    first = answering_pids(program, 1)
    source = program.folder / "my_agents.py"
    source.write_text(AGENTS.replace('"high" if "refund" in draft.text else "low"', '"medium"'))
    running.until("source_changed files=")
    running.until(CONSUMING, times=2)
    answer = program("call", "quality_agent", '{"text": "refund"}', "--json")
    assert answer.json["risk_level"] == "medium"
    assert answer.json["pid"] not in first

    running.signal()
    assert running.ended()[0] == 0


def test_a_broken_source_is_told_and_its_mend_starts_the_worker(program: Program) -> None:
    running = supervised(program, "--reload", consumers=1)
    source = program.folder / "my_agents.py"
    source.write_text("def broken(:\n")
    running.until("error: 'my_agents' cannot be imported: my_agents.py:1: SyntaxError")
    running.until("restart_after=a file changes")
    source.write_text(AGENTS)
    running.until(CONSUMING, times=2)
    assert "Traceback" not in running.said
