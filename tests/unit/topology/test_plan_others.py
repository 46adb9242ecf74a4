from dataclasses import replace

import pytest

from amqp_agents.topology.model import Policy
from amqp_agents.topology.observed import Observed, observed_of
from amqp_agents.topology.plan import plan
from tests.unit.topology.seen import (
    CONFLICT,
    CREATE,
    DESIRED,
    UPDATE,
    with_policy,
    with_queue,
    without,
)


def test_a_queue_of_another_name_does_not_stand_for_an_inbox() -> None:
    actual = observed_of(DESIRED, (4, 0))
    queues = without(actual.queues, "agent.a") | {"agent.a@2": (actual.queues or {})["agent.a"]}
    (change,) = plan(DESIRED, replace(actual, queues=queues), (4, 0))
    assert (change.kind, change.name) == (CREATE, "agent.a")


@pytest.mark.parametrize("priority", [10, 50])
def test_a_policy_that_hides_ours_is_a_conflict(priority: int) -> None:
    others = Policy("ops", r"^agent\.", {"max-length": 9}, priority=priority)
    changes = plan(DESIRED, with_policy(observed_of(DESIRED, (4, 0)), others), (4, 0))
    found = {change.name: change for change in changes}
    assert found["agent.inbox"].kind is CONFLICT
    assert found["agent.inbox"].differences == (
        f"hidden by policy 'ops' (priority {priority} against 10) on agent.a, agent.b",
    )


def test_a_policy_that_ours_takes_the_place_of_is_told() -> None:
    others = Policy("ops", r"^agent\.[ab]$", {"max-length": 9, "delivery-limit": 5}, priority=0)
    actual = replace(observed_of(DESIRED, (4, 0)), policies=(others,))
    inbox = next(change for change in plan(DESIRED, actual, (4, 0)) if change.name == "agent.inbox")
    assert inbox.kind is CREATE
    assert inbox.differences == ("ends max-length of policy 'ops' on agent.a, agent.b",)


def test_a_policy_of_others_that_would_release_delays_early_is_a_conflict() -> None:
    others = Policy("ttl", r"delay\.v1\.[0-2]$", {"message-ttl": 10}, priority=0)
    (change,) = plan(DESIRED, with_policy(observed_of(DESIRED, (4, 0)), others), (4, 0))
    assert (change.kind, change.name, change.subject) == (CONFLICT, "ttl", None)
    assert change.differences == (
        "message-ttl: have 10, want none on agent.delay.v1.0, agent.delay.v1.1 and 1 more",
    )


def test_a_policy_of_others_that_would_keep_unroutable_messages_is_a_conflict() -> None:
    others = Policy("catch", ".*", {"alternate-exchange": "bin"}, apply_to="exchanges")
    (change,) = plan(DESIRED, with_policy(observed_of(DESIRED, (4, 0)), others), (4, 0))
    assert change.differences == ("alternate-exchange: have bin, want none on agent.direct",)


@pytest.mark.parametrize(
    "others",
    [
        Policy("elsewhere", "^orders", {"max-length": 1}, priority=99),
        Policy("classic", ".*", {"max-length": 1}, priority=99, apply_to="classic_queues"),
        Policy("unreadable", r"^\Qagent\E(", {"max-length": 1}, priority=99),
        Policy("events", ".*", {"dead-letter-exchange": "x"}, priority=0),
    ],
)
def test_policies_of_others_that_do_no_harm_are_left_alone(others: Policy) -> None:
    assert plan(DESIRED, with_policy(observed_of(DESIRED, (4, 0)), others), (4, 0)) == ()


def test_a_policy_that_the_broker_says_it_applies_counts_even_if_unreadable() -> None:
    others = Policy("odd", r"^\Qagent.a\E(", {"max-length": 1}, priority=99)
    actual = with_policy(observed_of(DESIRED, (4, 0)), others)
    (change,) = plan(DESIRED, with_queue(actual, "agent.a", policy="odd"), (4, 0))
    assert (change.kind, change.name) == (CONFLICT, "agent.inbox")


def test_a_policy_to_update_is_no_conflict_of_its_queues() -> None:
    inbox = next(each for each in DESIRED.policies if each.name == "agent.inbox")
    older = replace(inbox, definition={"delivery-limit": 50})
    before = replace(DESIRED, policies=(*(p for p in DESIRED.policies if p != inbox), older))
    (change,) = plan(DESIRED, observed_of(before, (4, 0)), (4, 0))
    assert (change.kind, change.name) == (UPDATE, "agent.inbox")


def test_an_operator_policy_that_lowers_ours_is_a_conflict_of_the_queue() -> None:
    actual = with_queue(
        observed_of(DESIRED, (4, 0)), "agent.a", effective={"delivery-limit": 5, "max-length": 2}
    )
    (change,) = plan(DESIRED, actual, (4, 0))
    assert (change.kind, change.name) == (CONFLICT, "agent.a")
    assert change.differences == ("delivery-limit in effect (operator policy): have 5, want 100",)


def test_before_4_0_no_policy_without_limit_is_wanted() -> None:
    names = {change.name for change in plan(DESIRED, Observed(policies=()), (3, 10))}
    assert names == {"agent.inbox"}
