"""Plan and apply: what is missing is made, what is there stays, what differs is reported."""

from dataclasses import replace

import pytest

from amqp_agents.brokers.base import Broker
from amqp_agents.errors import ConfigurationError, TopologyConflictError
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import (
    AgentSpec,
    Binding,
    Exchange,
    ExchangeKind,
    Policy,
    Queue,
    QueueKind,
    Topology,
)
from amqp_agents.topology.plan import Change, ChangeKind, ObjectKind
from tests.conformance.lab import Lab
from tests.conformance.waiting import Arrivals, body, send, until_depth

SMALL = Topology(
    exchanges=(Exchange("x", ExchangeKind.TOPIC), Exchange("y", ExchangeKind.FANOUT)),
    queues=(Queue("q"), Queue("c", QueueKind.CLASSIC, {"x-message-ttl": 60_000})),
    bindings=(
        Binding("x", "q", "a.*"),
        Binding("x", "y", "#", to_exchange=True),
        Binding("y", "c"),
    ),
    policies=(Policy("small", "^q$", {"delivery-limit": 7}),),
)


async def test_a_plan_names_what_is_missing_and_changes_nothing(broker: Broker) -> None:
    planned = await broker.plan(SMALL)
    assert {(change.object_kind, change.name) for change in planned} >= {
        (ObjectKind.EXCHANGE, "x"),
        (ObjectKind.QUEUE, "q"),
        (ObjectKind.POLICY, "small"),
    }
    assert {change.kind for change in planned} == {ChangeKind.CREATE}
    assert await broker.depth("q") is None
    assert list(await broker.plan(SMALL)) == list(planned)


async def test_an_apply_reports_each_change_and_leaves_an_empty_plan(
    lab: Lab, broker: Broker
) -> None:
    planned = await broker.plan(SMALL)
    reported: list[Change] = []
    applied = await broker.apply(SMALL, on_change=reported.append)
    assert set(map(str, applied)) == set(map(str, planned)) == set(map(str, reported))
    assert list(await broker.plan(SMALL)) == []
    assert list(await broker.apply(SMALL)) == []
    assert list(await (await lab.connect()).plan(SMALL)) == []


async def test_an_apply_adds_only_what_is_missing(broker: Broker) -> None:
    await broker.apply(SMALL)
    await send(broker, "x", "a.b", "kept")
    more = Topology(
        exchanges=SMALL.exchanges,
        queues=(*SMALL.queues, Queue("extra")),
        bindings=(*SMALL.bindings, Binding("y", "extra")),
        policies=SMALL.policies,
    )
    applied = await broker.apply(more)
    assert {(change.object_kind, change.kind) for change in applied} == {
        (ObjectKind.QUEUE, ChangeKind.CREATE),
        (ObjectKind.BINDING, ChangeKind.CREATE),
    }
    assert [await broker.depth(queue) for queue in ("q", "c", "extra")] == [1, 1, 0]


async def test_a_policy_changes_in_place(broker: Broker) -> None:
    await broker.apply(SMALL)
    changed = Topology(policies=(Policy("small", "^q$", {"delivery-limit": 8}),))
    (change,) = await broker.apply(changed)
    assert (change.kind, change.name) == (ChangeKind.UPDATE, "small")
    assert "8" in change.differences[0]
    assert list(await broker.plan(changed)) == []


async def test_a_policy_takes_effect(broker: Broker) -> None:
    await broker.apply(SMALL)
    await broker.apply(Topology(policies=(Policy("small", "^q$", {"max-length": 2}),)))
    arrivals = Arrivals(broker)
    for text in "abcd":
        await send(broker, "x", "a.b", text)
    await until_depth(broker, "q", 2)
    await broker.consume("q", arrivals, prefetch=2)
    assert [body(lease) for lease in await arrivals.some(2)] == ["c", "d"]


X, Y = SMALL.exchanges
Q, C = SMALL.queues


@pytest.mark.parametrize(
    ("different", "named"),
    [
        (replace(SMALL, queues=(Queue("q", QueueKind.CLASSIC), C)), "q"),
        (replace(SMALL, queues=(Queue("q", settings={"x-message-ttl": 5}), C)), "x-message-ttl"),
        (replace(SMALL, exchanges=(Exchange("x", ExchangeKind.DIRECT), Y)), "x"),
        (
            replace(SMALL, exchanges=(X, Exchange("y", ExchangeKind.FANOUT, alternate="x"))),
            "alternate-exchange",
        ),
    ],
    ids=["queue type", "queue argument", "exchange type", "alternate"],
)
async def test_what_is_declared_differently_is_reported_and_left_alone(
    broker: Broker, different: Topology, named: str
) -> None:
    await broker.apply(SMALL)
    await send(broker, "x", "a.b", "kept")
    (conflict,) = await broker.plan(different)
    assert conflict.kind is ChangeKind.CONFLICT
    with pytest.raises(TopologyConflictError, match=named):
        await broker.apply(different)
    assert list(await broker.plan(SMALL)) == []
    assert await broker.depth("q") == 1


async def test_a_topology_that_no_broker_would_obey_is_refused(broker: Broker) -> None:
    misspelt = Topology(queues=(Queue("q", settings={"x-mesage-ttl": 5}),))
    with pytest.raises(ConfigurationError, match="x-mesage-ttl"):
        await broker.apply(misspelt)
    assert await broker.depth("q") is None


async def test_the_standard_topology_can_be_applied_twice(broker: Broker) -> None:
    agents = [AgentSpec("support", events=("ticket.*",)), AgentSpec("quality")]
    topology = standard_topology(agents)
    assert await broker.apply(topology)
    assert list(await broker.plan(topology)) == []
    assert list(await broker.apply(topology)) == []
