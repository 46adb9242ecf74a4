"""What a person sees on a terminal, and what a pipe gets instead."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.integration.cli.program import Program

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")


def on_a_terminal(program: Program, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Return what a command writes to a terminal that takes the place of both its streams."""
    ours, theirs = os.openpty()
    environment = {**program.environment, "TERM": "xterm", **(env or {})}
    with subprocess.Popen(
        [sys.executable, "-m", "amqp_agents", *arguments],
        cwd=program.folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        told = _read_all(ours)
        process.wait(timeout=30)
    os.close(ours)
    return told.decode()


def _read_all(descriptor: int) -> bytes:
    told = b""
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:  # Linux: nobody has the terminal open any more
            return told
        if not part:
            return told
        told += part


def test_colours_are_for_terminals_only(offline: Program) -> None:
    short = {"AMQP_AGENTS_CONNECT_TIMEOUT_SECONDS": "0.2"}
    assert COLOUR.search(on_a_terminal(offline, "doctor", env=short))
    assert "\x1b" not in offline("doctor", env=short).out


def test_no_color_is_respected(offline: Program) -> None:
    plain = {"AMQP_AGENTS_CONNECT_TIMEOUT_SECONDS": "0.2", "NO_COLOR": "1"}
    for command in (["doctor"], ["run", "--help"]):
        told = on_a_terminal(offline, *command, env=plain)
        assert told
        assert not COLOUR.search(told)


@pytest.mark.rabbitmq
def test_long_work_shows_a_bar_on_a_terminal_only(program: Program) -> None:
    (program.folder / "more.yaml").write_text("agents: [{name: order_agent}]\n")
    told = on_a_terminal(program, "topology", "apply", "my_agents:app")
    assert re.search(r"topology .*[1-9][0-9]/[1-9][0-9]", told)
    piped = program("topology", "apply", "more.yaml")
    assert piped.code == 0
    assert piped.out.startswith("created ")
    assert piped.err == ""
