"""Help, versions and pictures: what needs no broker."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Invoke

COMMANDS = [
    ["run"],
    ["call"],
    ["publish"],
    ["topology", "apply"],
    ["topology", "check"],
    ["topology", "graph"],
    ["dlq", "list"],
    ["dlq", "show"],
    ["dlq", "replay"],
    ["doctor"],
    ["demo"],
    ["version"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_examples_and_json(invoke: Invoke, command: list[str]) -> None:
    ended = invoke(*command, "--help")
    assert ended.exit_code == 0
    assert f"amqp-agents {' '.join(command)}" in ended.stdout.split("Examples:")[1]
    assert "--json" in ended.stdout
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize("group", [[], ["topology"], ["dlq"]], ids=str)
def test_a_group_alone_shows_its_help(invoke: Invoke, group: list[str]) -> None:
    ended = invoke(*group)
    assert ended.exit_code == 0
    assert "Commands:" in ended.stdout


def test_exit_codes_are_told_in_the_help(invoke: Invoke) -> None:
    assert "Exit codes: 0 fine, 1 error or wrong usage, 2" in invoke("--help").stdout


def test_the_version_is_told_both_ways(invoke: Invoke) -> None:
    assert invoke("version").stdout == invoke("--version").stdout
    assert set(json.loads(invoke("version", "--json").stdout)) == {
        "amqp-agents",
        "aio-pika",
        "pydantic",
        "python",
    }


def test_a_graph_is_printed_in_both_languages(invoke: Invoke, folder: Path) -> None:
    (folder / "agents.yaml").write_text("agents: [{name: order_agent}]\n")
    assert invoke("topology", "graph", "agents.yaml").stdout.startswith("flowchart")
    dot = invoke("topology", "graph", "agents.yaml", "--format", "dot", "--json")
    told = json.loads(dot.stdout)
    assert told["format"] == "dot"
    assert "agent.order_agent.dlq" in told["graph"]
