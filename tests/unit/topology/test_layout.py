import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_agents.errors import ConfigurationError, DuplicateAgentError
from amqp_agents.topology import names
from amqp_agents.topology.delays import LEVELS
from amqp_agents.topology.layout import (
    inbox_queue,
    policies_as_arguments,
    reply_topology,
    standard_topology,
)
from amqp_agents.topology.model import AgentSpec, Exchange, QueueKind, Topology
from amqp_agents.topology.validate import problems

WORDS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
INTENTS = st.lists(st.one_of(WORDS, st.sampled_from("*#")), min_size=1, max_size=3).map(".".join)
AGENTS = st.builds(
    AgentSpec,
    st.from_regex(names.AGENT_ID, fullmatch=True).filter(lambda n: n not in names.RESERVED_IDS),
    events=st.lists(INTENTS, max_size=3).map(tuple),
)
FLEETS = st.lists(AGENTS, max_size=4, unique_by=lambda agent: agent.name)
QUALITY = AgentSpec("quality_agent", role="quality", events=("ticket.closed", "policy.#"))


def exchange(topology: Topology, name: str) -> Exchange:
    return next(each for each in topology.exchanges if each.name == name)


def keys(topology: Topology, source: str, destination: str) -> list[str]:
    return [
        binding.routing_key
        for binding in topology.bindings
        if (binding.source, binding.destination) == (source, destination)
    ]


@settings(max_examples=30)
@given(FLEETS)
def test_both_ends_of_every_binding_alternate_and_dead_letter_exist(
    agents: list[AgentSpec],
) -> None:
    topology = standard_topology(agents)
    assert problems(topology) == ()
    for version in [(3, 10), (4, 0), (4, 3)]:
        assert problems(policies_as_arguments(topology, version), version) == ()


def test_an_agent_is_reached_by_address_delay_subscription_and_what_it_declares() -> None:
    topology = standard_topology([QUALITY])
    inbox = "agent.quality_agent"
    for source in ("agent.direct", "agent.delay.exit", "agent.subscriptions"):
        assert keys(topology, source, inbox) == ["quality_agent"]
    assert keys(topology, "agent.events", inbox) == [
        "agent.quality_agent",
        "event.ticket.closed",
        "event.policy.#",
        "broadcast.ticket.closed",
        "broadcast.policy.#",
    ]
    assert keys(topology, "agent.dlx", "agent.quality_agent.dlq") == ["quality_agent"]


def test_an_unknown_agent_comes_back_because_agent_direct_has_no_alternate() -> None:
    topology = standard_topology([QUALITY])
    assert exchange(topology, "agent.direct").alternate is None
    for name in ("agent.dlx", "agent.delay.exit"):
        assert exchange(topology, name).alternate == "agent.lost"
        assert exchange(topology, name).arguments["alternate-exchange"] == "agent.lost"


@pytest.mark.parametrize("level", range(LEVELS))
def test_each_level_holds_for_its_bit_and_hands_on_to_the_one_below(level: int) -> None:
    topology = standard_topology([])
    name = f"agent.delay.v1.{level}"
    below = f"agent.delay.v1.{level - 1}" if level else "agent.delay.exit"
    queue = next(each for each in topology.queues if each.name == name)
    assert queue.kind is QueueKind.QUORUM
    assert queue.settings == {
        "x-message-ttl": 2**level * 1000,
        "x-dead-letter-exchange": below,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert exchange(topology, name).alternate == below
    (binding,) = [each for each in topology.bindings if each.source == name]
    assert binding.destination == name
    assert binding.arguments == {"x-match": "all", f"d{level}": True}


def test_the_only_door_into_the_chain_leads_to_its_top() -> None:
    topology = standard_topology([])
    (door,) = [each for each in topology.bindings if each.source == "agent.delay"]
    assert (door.destination, door.routing_key, door.to_exchange) == (
        "agent.delay.v1.16",
        "#",
        True,
    )


def test_an_inbox_dead_letters_at_least_once_under_a_key_of_its_own() -> None:
    assert inbox_queue("quality_agent").arguments == {
        "x-queue-type": "quorum",
        "aa-owner": "amqp_agents",
        "x-dead-letter-exchange": "agent.dlx",
        "x-dead-letter-routing-key": "quality_agent",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def test_an_intent_declared_twice_is_bound_once() -> None:
    agent = AgentSpec("a", events=("x", "x"))
    assert keys(standard_topology([agent]), "agent.events", "agent.a") == [
        "agent.a",
        "event.x",
        "broadcast.x",
    ]


def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateAgentError, match="'a' is declared twice"):
        standard_topology([AgentSpec("a"), AgentSpec("a", role="other")])


@pytest.mark.parametrize("name", ["", "a.b", "lost", "switch", "ü", "a" * 65, "a@2"])
def test_a_name_that_cannot_be_an_address_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="agent id"):
        standard_topology([AgentSpec(name)])


@pytest.mark.parametrize("intent", ["", "a b", "ticket*", "a..b", ".a", "a.", "##", "x" * 250])
def test_an_intent_no_binding_can_match_is_refused_with_its_agent(intent: str) -> None:
    with pytest.raises(ConfigurationError, match=r"agent 'a': intent"):
        standard_topology([AgentSpec("a", events=(intent,))])


def test_a_client_instance_gets_a_classic_queue_that_ends_with_it() -> None:
    topology = reply_topology("3f2a")
    (queue,) = topology.queues
    assert (queue.name, queue.kind) == ("agent.reply.3f2a", QueueKind.CLASSIC)
    assert queue.settings["x-expires"] == 600_000
    assert [(b.source, b.routing_key) for b in topology.bindings] == [
        ("agent.reply", "3f2a"),
    ]
    assert problems(topology) == ()


@given(FLEETS)
def test_all_names_stand_in_the_one_namespace(agents: list[AgentSpec]) -> None:
    topology = standard_topology(agents)
    for name in [e.name for e in topology.exchanges] + [q.name for q in topology.queues]:
        assert re.fullmatch(r"agent\.[A-Za-z0-9_.-]+", name)
