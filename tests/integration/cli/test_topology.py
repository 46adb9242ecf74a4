"""`amqp-agents topology` against a real broker."""

import pytest

from tests.integration.cli.program import Program
from tests.nodes.endpoint import Endpoint

pytestmark = pytest.mark.rabbitmq

WITHOUT_MANAGEMENT = {"AMQP_AGENTS_MANAGEMENT_URL": "http://127.0.0.1:9"}


def vhost_of(program: Program) -> str:
    return program.environment["AMQP_AGENTS_URL"].rpartition("/")[2]


def test_check_says_2_before_and_0_after_an_apply(program: Program) -> None:
    before = program("topology", "check", "my_agents:app")
    assert before.code == 2
    assert "missing queue agent.quality_agent.dlq" in before.out

    applied = program("topology", "apply", "my_agents:app")
    assert applied.code == 0
    assert "verified" in applied.out
    assert "settings by policies (management API)" in applied.out
    assert "\x1b" not in applied.out + applied.err

    after = program("topology", "check", "my_agents:app", "--json")
    assert (after.code, after.json) == (0, {"differences": [], "unchecked": None})
    again = program("topology", "apply", "my_agents:app")
    assert "nothing to do" in again.out


def test_a_yaml_file_is_taken_by_default(program: Program) -> None:
    folder = program.folder / "topology"
    folder.mkdir()
    (folder / "agents.yaml").write_text("agents: [{name: order_agent}]\n")
    assert program("topology", "apply").code == 0
    assert program("topology", "check", "topology/agents.yaml").code == 0


def test_a_conflict_is_told_with_both_values_and_changes_nothing(
    program: Program, rabbitmq: Endpoint
) -> None:
    vhost = vhost_of(program)
    other = {"durable": True, "arguments": {"x-queue-type": "classic", "x-message-ttl": 30000}}
    rabbitmq.management.call("PUT", f"queues/{vhost}/agent.quality_agent", other)

    ended = program("topology", "apply", "my_agents:app")
    assert ended.code == 1
    assert "queue agent.quality_agent" in ended.err
    assert "x-queue-type: have classic, want quorum" in ended.err
    assert "x-message-ttl: have 30000, want none" in ended.err
    assert "nothing was changed" in ended.err
    queues = rabbitmq.management.call("GET", f"queues/{vhost}")
    assert [queue["name"] for queue in queues] == ["agent.quality_agent"]

    checked = program("topology", "check", "my_agents:app", "--json")
    assert checked.code == 2
    conflict = [each for each in checked.json["differences"] if each["what"] == "differs"]
    assert conflict[0]["name"] == "agent.quality_agent"


def test_without_management_the_settings_go_by_arguments(program: Program) -> None:
    ended = program("topology", "apply", "my_agents:app", env=WITHOUT_MANAGEMENT)
    assert ended.code == 0
    assert "settings by arguments" in ended.out
    assert "AMQP_AGENTS_MANAGEMENT_URL" in ended.out
    checked = program("topology", "check", "my_agents:app", env=WITHOUT_MANAGEMENT)
    assert checked.code == 0
    assert "bindings could not be seen" in checked.err


def test_doctor_finds_a_fresh_vhost_wanting_and_an_applied_one_right(program: Program) -> None:
    before = program("doctor", "my_agents:app")
    assert before.code == 1
    assert "-> amqp-agents topology apply my_agents:app" in before.out
    program("topology", "apply", "my_agents:app")
    after = program("doctor", "my_agents:app", "--json")
    assert after.code == 0
    assert [each["about"] for each in after.json["findings"]] == [
        "connection",
        "version",
        "management",
        "permissions",
        "plugins",
        "topology",
    ]


def test_doctor_names_the_permissions_that_are_lacking(
    program: Program, rabbitmq: Endpoint
) -> None:
    vhost = vhost_of(program)
    rabbitmq.management.call(
        "PUT", f"permissions/{vhost}/guest", {"configure": "", "write": ".*", "read": ".*"}
    )
    ended = program("doctor")
    assert ended.code == 1
    assert "user 'guest' may not configure agent.reply.x" in ended.out
