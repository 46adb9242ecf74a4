"""What doctor makes of what it sees, and when a look would be dangerous."""

from typing import Any

import pytest

from amqp_agents.cli.dlq_safety import delivery_limit
from amqp_agents.cli.findings import (
    State,
    of_permissions,
    of_plugins,
    of_topology,
    of_version,
    tags_of,
)
from amqp_agents.topology.plan import Change, ChangeKind, ObjectKind

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ((3, 8, 9), State.WRONG),
        ((3, 10, 8), State.RIGHT),
        ((4, 0, 5), State.RIGHT),
        ((4, 3, 6), State.RIGHT),
        ((5, 0, 0), State.NOTE),
    ],
)
def test_a_version_is_judged_by_what_is_known_of_it(
    version: tuple[int, int, int], state: State
) -> None:
    finding = of_version(version)
    assert finding.state is state
    assert (finding.mend is None) is (state is State.RIGHT)


@pytest.mark.parametrize(
    ("permissions", "lacking"),
    [
        (ALL, None),
        (dict.fromkeys(ALL, r"^agent\..*"), None),
        (None, "has none"),
        (ALL | {"configure": ""}, "configure agent.reply.x"),
        (ALL | {"write": "^agent.direct$"}, "write agent.events"),
        (ALL | {"read": "^$"}, "read agent.x"),
        (ALL | {"read": "("}, None),
    ],
)
def test_permissions_are_compared_with_what_agents_need(
    permissions: dict[str, str] | None, lacking: str | None
) -> None:
    finding = of_permissions(permissions, "me")
    if lacking is None:
        assert finding.state is State.RIGHT
    else:
        assert finding.state is State.WRONG
        assert lacking in finding.told
        assert finding.mend is not None


def test_plugins_are_seen_by_their_listeners() -> None:
    assert of_plugins({"listeners": [{"protocol": "http/prometheus"}]}).state is State.RIGHT
    assert of_plugins({}).state is State.NOTE


def test_a_missing_queue_is_wrong_and_a_changed_setting_is_a_note() -> None:
    missing = Change(ChangeKind.CREATE, ObjectKind.QUEUE, "agent.a")
    changed = Change(ChangeKind.UPDATE, ObjectKind.POLICY, "agent.inbox", ("delivery-limit",))
    assert of_topology([missing], "my:app", "apply").state is State.WRONG
    assert of_topology([changed], "my:app", "apply").state is State.NOTE
    assert of_topology([], "my:app", "apply").state is State.RIGHT
    assert "and 4 more" in of_topology([missing] * 9, "my:app", "apply").told


@pytest.mark.parametrize("told", [["management"], "management", "management, policymaker"])
def test_tags_are_read_as_every_version_writes_them(told: object) -> None:
    assert "management" in tags_of({"tags": told})


UNLIMITED, SEVEN = {"delivery-limit": -1}, {"delivery-limit": 7}


def policy(definition: dict[str, Any], **told: Any) -> dict[str, Any]:
    return {
        "name": "p",
        "pattern": "^agent",
        "apply-to": "queues",
        "priority": 1,
        "definition": definition,
    } | told


@pytest.mark.parametrize(
    ("queue", "policies", "limit"),
    [
        ({}, [], 20),
        ({"effective_policy_definition": []}, [], 20),
        ({"arguments": {"x-delivery-limit": -1}}, [], -1),
        ({"effective_policy_definition": SEVEN}, [policy(UNLIMITED)], -1),  # stale
        ({"effective_policy_definition": SEVEN, "operator_policy": "o"}, [policy(UNLIMITED)], 7),
        ({}, [policy(UNLIMITED)], -1),
        ({}, [policy(UNLIMITED, pattern="^other")], 20),
        ({}, [policy(UNLIMITED), policy(SEVEN, name="q", priority=9)], 7),
        ({"arguments": {"x-delivery-limit": -1}}, [policy(SEVEN)], 7),
        ({}, [policy(UNLIMITED), policy(SEVEN, name="q", priority=9, pattern="(?<")], -1),
    ],
)
def test_the_limit_in_effect_is_read_from_arguments_and_policies(
    queue: dict[str, Any], policies: list[dict[str, Any]], limit: int
) -> None:
    assert delivery_limit({"name": "agent.a.dlq"} | queue, policies, (4, 0)) == limit


def test_before_4_0_there_is_no_limit_unless_one_is_set() -> None:
    assert delivery_limit({"name": "agent.a.dlq"}, [], (3, 10)) == -1
    assert delivery_limit({"name": "agent.a.dlq"}, [policy(SEVEN)], (3, 10)) == 7
