"""Declaring a topology with, and without, the management API."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.config import Settings
from amqp_agents.errors import BrokerError, TopologyConflictError, TopologyMissingError
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
from amqp_agents.topology.plan import Change, ChangeKind
from tests.conformance.waiting import send
from tests.integration.rabbitmq.conftest import Account, Configure
from tests.nodes.endpoint import Endpoint
from tests.nodes.ports import free_port

pytestmark = pytest.mark.rabbitmq

AGENTS = standard_topology([AgentSpec(f"agent{number}") for number in range(5)])


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[RabbitMQBroker]:
    broker = RabbitMQBroker(settings, name="declaring")
    await broker.connect(timeout_seconds=10)
    try:
        yield broker
    finally:
        await broker.close()


def nowhere() -> str:
    return f"http://127.0.0.1:{free_port()}"


async def test_a_second_apply_changes_nothing(configured: Configure) -> None:
    told: list[Change] = []
    async with connected(configured()) as broker:
        planned = await broker.plan(AGENTS)
        changes = await broker.apply(AGENTS, on_change=told.append)
        assert await broker.plan(AGENTS) == ()
        assert await broker.apply(AGENTS) == ()
        assert broker.policies_by_management is True
    assert list(planned) == list(changes)
    assert sorted(map(str, told)) == sorted(map(str, changes))
    assert {change.kind for change in changes} == {ChangeKind.CREATE}


async def test_five_agents_with_every_delay_level_are_declared_in_seconds(
    configured: Configure,
) -> None:
    async with connected(configured()) as broker:
        began = time.monotonic()
        await broker.apply(AGENTS)
        assert time.monotonic() - began < 5


async def test_without_the_management_api_policies_become_arguments(
    configured: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with connected(configured(management_url=nowhere())) as broker:
        await broker.apply(AGENTS)
        assert broker.policies_by_management is False
        assert await broker.apply(AGENTS) == ()
        await send(broker, "agent.direct", "agent0", "x")
        await send(broker, "agent.delay", "agent0", "later", headers={"d16": True})
    assert "policies_as_arguments" in caplog.text
    async with connected(configured()) as broker:
        left = await broker.plan(AGENTS)
    assert {change.object_kind.value for change in left} == {"policy"}


async def test_what_policies_set_is_found_in_place_without_the_management_api(
    configured: Configure,
) -> None:
    plain = Topology(queues=(Queue("work"),), policies=(Policy("p", "^work$", {"max-length": 9}),))
    async with connected(configured()) as broker:
        await broker.apply(plain)
    async with connected(configured(management_url=nowhere())) as broker:
        assert await broker.plan(plain) == ()


async def test_a_user_who_may_not_write_policies_gets_arguments(
    configured: Configure, rabbitmq: Endpoint, vhost_url: str
) -> None:
    call, parts = rabbitmq.management.call, urlsplit(vhost_url)
    vhost = parts.path[1:]
    user = f"declarer-{vhost}"
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    await asyncio.to_thread(call, "PUT", f"users/{user}", {"password": "pw", "tags": "management"})
    await asyncio.to_thread(call, "PUT", f"permissions/{vhost}/{user}", rights)
    url = f"amqp://{user}:pw@{parts.hostname}:{parts.port}/{vhost}"
    try:
        async with connected(configured(url=url)) as broker:
            await broker.apply(AGENTS)
            assert broker.policies_by_management is False
            assert await broker.plan(AGENTS) == ()
    finally:
        await asyncio.to_thread(call, "DELETE", f"users/{user}")


@pytest.mark.parametrize("tags", ["administrator", "management", ""])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_user_who_may_not_declare_is_told_so(
    configured: Configure, account: Account, tags: str, *, declared: bool
) -> None:
    await account.put(tags=tags)
    await account.grant(write=".*", read=".*")
    if declared:  # one thing is missing, so that there is something to declare
        async with connected(configured()) as broker:
            await broker.apply(AGENTS)
            (change, *_) = await broker.plan(standard_topology([AgentSpec("late")]))
            assert change.kind is ChangeKind.CREATE
    wanted = standard_topology([AgentSpec("agent0"), AgentSpec("late")])
    async with connected(configured(url=account.url())) as broker:
        with pytest.raises(BrokerError) as caught:
            await broker.apply(wanted)
    told = str(caught.value)
    assert f"refused for user '{account.name}'" in told
    assert "access to " in told
    assert "rabbitmqctl set_permissions" in told


async def test_a_refusal_stays_one_however_often_it_is_asked_for(
    configured: Configure, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(configured()) as broker:
        await broker.apply(AGENTS)
    await account.grant()
    settings = configured(url=account.url(), management_url=nowhere())
    async with connected(settings) as broker:
        for _ in range(10):  # calls that were cut short cost the connection, now and then
            with pytest.raises(BrokerError, match="refused for user"):
                await broker.apply(AGENTS)
    assert "connection_lost" not in caplog.text


@pytest.mark.parametrize("managed", [True, False])
async def test_conflicts_are_all_named_and_nothing_is_changed(
    configured: Configure, *, managed: bool
) -> None:
    settings = configured() if managed else configured(management_url=nowhere())
    before = Topology(
        exchanges=(Exchange("x", ExchangeKind.FANOUT),),
        queues=(Queue("q", QueueKind.CLASSIC), Queue("ttl", settings={"x-message-ttl": 1000})),
    )
    wanted = Topology(
        exchanges=(Exchange("x", ExchangeKind.TOPIC), Exchange("new", ExchangeKind.FANOUT)),
        queues=(Queue("q"), Queue("ttl", settings={"x-message-ttl": 2000}), Queue("new")),
        bindings=(Binding("x", "new", "k"),),
    )
    async with connected(settings) as broker:
        await broker.apply(before)
        with pytest.raises(TopologyConflictError) as caught:
            await broker.apply(wanted)
        assert await broker.depth("new") is None
    told = str(caught.value)
    assert len(caught.value.differences) == 3
    assert "fanout" in told
    assert "topic" in told
    assert "classic" in told
    assert "quorum" in told
    assert "1000" in told
    assert "2000" in told
    assert "nothing was changed" in told


async def test_a_changed_policy_is_updated(configured: Configure) -> None:
    def limited(length: int) -> Topology:
        policy = Policy("limit", "^work$", {"max-length": length})
        return Topology(queues=(Queue("work"),), policies=(policy,))

    async with connected(configured()) as broker:
        await broker.apply(limited(10))
        (change,) = await broker.apply(limited(20))
        assert change.kind is ChangeKind.UPDATE
        assert "max-length: have 10, want 20" in str(change)
        assert await broker.plan(limited(20)) == ()


async def test_replies_without_their_exchange_name_the_remedy(configured: Configure) -> None:
    async with connected(configured()) as broker:
        with pytest.raises(TopologyMissingError, match=r"exchange agent\.reply; run 'amqp-agents"):
            await broker.open_replies("instance", lambda _: None)


async def test_browsing_a_missing_queue_names_the_remedy(configured: Configure) -> None:
    async with connected(configured()) as broker:
        browser = await broker.browse("nowhere")
        with pytest.raises(TopologyMissingError, match="queue nowhere; run 'amqp-agents"):
            await browser.get()
        await browser.close()
