import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_agents.topology import names, policies
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import (
    AgentSpec,
    Exchange,
    ExchangeKind,
    Policy,
    Queue,
    QueueKind,
    Topology,
)
from amqp_agents.topology.policies import (
    argument_settings,
    effective_policy,
    matches,
    policies_as_arguments,
)

CLASSES = (policies.INBOX, policies.DEAD_LETTERS, policies.LOST)
FLEET = [AgentSpec(name) for name in ("a", "quality_agent", "x-1", "dlq", "reply2", "lostx")]
INSTANCES = ("1", "3f2a", "dlq", "a.dlq", "lost", "a@2")
AGENT_IDS = st.from_regex(names.AGENT_ID, fullmatch=True).filter(
    lambda name: name not in names.RESERVED_IDS
)


def classes_of(queue: str) -> list[str]:
    return [policy.name for policy in CLASSES if matches(policy, queue)]


def test_no_queue_name_of_the_package_is_in_two_classes() -> None:
    topology = standard_topology(FLEET)
    every = [queue.name for queue in topology.queues]
    every += [names.reply_queue(instance) for instance in INSTANCES]
    found = {name: classes_of(name) for name in every}
    assert all(len(classes) <= 1 for classes in found.values())
    for agent in FLEET:
        assert found[names.inbox(agent.name)] == ["agent.inbox"]
        assert found[names.dead_letter_queue(agent.name)] == ["agent.dlq"]
    assert found["agent.lost"] == ["agent.lost"]


@pytest.mark.parametrize(
    "name",
    [*(names.reply_queue(instance) for instance in INSTANCES)]
    + [names.delay_level(level) for level in (0, 16)]
    + ["agent.reply", "agent.delay", "agent.switch.a", "agent.a.dlq.old", "xagent.a", "agent."],
)
def test_what_is_neither_inbox_nor_dead_letters_has_no_class(name: str) -> None:
    assert classes_of(name) == []


@given(AGENT_IDS)
def test_whatever_an_agent_is_called_its_queues_are_in_their_classes(agent: str) -> None:
    assert classes_of(names.inbox(agent)) == ["agent.inbox"]
    assert classes_of(names.dead_letter_queue(agent)) == ["agent.dlq"]


@pytest.mark.parametrize("version", [(3, 10), (3, 13)])
def test_before_4_0_no_queue_is_told_to_have_no_delivery_limit(version: tuple[int, int]) -> None:
    topology = policies_as_arguments(standard_topology(FLEET), version)
    assert all(-1 not in queue.settings.values() for queue in topology.queues)


def test_without_the_management_api_the_classes_become_arguments() -> None:
    topology = policies_as_arguments(standard_topology([AgentSpec("a")]), (4, 0))
    settings = {queue.name: dict(queue.settings) for queue in topology.queues}
    assert topology.policies == ()
    assert settings["agent.a"]["x-delivery-limit"] == 100
    assert settings["agent.a.dlq"] == {"x-delivery-limit": -1}
    assert settings["agent.lost"] == {"x-delivery-limit": -1}
    assert "x-delivery-limit" not in settings["agent.delay.v1.3"]


def test_an_argument_that_is_there_already_stays() -> None:
    queue = Queue("agent.a", settings={"x-delivery-limit": 7})
    topology = Topology(queues=(queue,), policies=(policies.INBOX,))
    (settled,) = policies_as_arguments(topology, (4, 0)).queues
    assert settled == queue


def test_an_alternate_exchange_by_policy_becomes_one_by_argument() -> None:
    policy = Policy("p", "^x$", {"alternate-exchange": "y"}, apply_to="exchanges")
    pair = (Exchange("x", ExchangeKind.TOPIC), Exchange("z", ExchangeKind.TOPIC))
    topology = Topology(exchanges=pair, policies=(policy,))
    settled = policies_as_arguments(topology, (4, 0)).exchanges
    assert [exchange.alternate for exchange in settled] == ["y", None]


def test_a_limit_of_minus_one_is_left_out_even_if_a_policy_asks_3_10_for_it() -> None:
    policy = Policy("p", ".*", {"delivery-limit": -1, "max-length": 5})
    assert argument_settings(policy, (3, 10)) == {"x-max-length": 5}
    assert argument_settings(policy, (4, 0)) == {"x-delivery-limit": -1, "x-max-length": 5}


def test_only_the_policy_of_highest_priority_takes_effect() -> None:
    low, high = Policy("low", ".*", {"max-length": 1}), Policy("high", "a", {}, priority=11)
    assert effective_policy([low, high], "a", (4, 0)) is high
    assert effective_policy([low, high], "b", (4, 0)) is low
    assert effective_policy([high], "b", (4, 0)) is None


def test_a_policy_for_one_queue_type_matches_queues_of_that_type() -> None:
    policy = Policy("p", ".*", {"max-length": 1}, apply_to="quorum_queues")
    assert matches(policy, "a", kind=QueueKind.QUORUM)
    assert not matches(policy, "a", kind=QueueKind.CLASSIC)
    assert not matches(policy, "a", apply_to="exchanges")
    streams = Policy("p", ".*", {"max-age": "1D"}, apply_to="streams")
    assert matches(streams, "a", kind=QueueKind.STREAM)


def test_a_policy_a_version_cannot_carry_out_does_not_exist_there() -> None:
    assert effective_policy(CLASSES, "agent.lost", (3, 13)) is None
    assert effective_policy(CLASSES, "agent.lost", (4, 0)) is policies.LOST
