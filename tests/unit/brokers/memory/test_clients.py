"""Clients of one vhost, their connections, and faults on demand."""

import asyncio

import pytest

from amqp_agents.brokers.base import Lease, SubscriptionState
from amqp_agents.brokers.memory import MemoryBroker, Vhost
from amqp_agents.clock import ManualClock
from amqp_agents.errors import (
    BrokerConnectionError,
    BrokerError,
    OutcomeUnknownError,
    PublishRejectedError,
    TopologyMissingError,
)
from amqp_agents.topology.model import (
    Binding,
)
from tests.unit.brokers.memory.posting import (
    SAFE,
    bodies,
    queue_of,
    send,
    taken,
)


async def test_clients_of_one_vhost_see_the_same_queues(clock: ManualClock) -> None:
    vhost = Vhost(clock)
    one, two = MemoryBroker(vhost=vhost), MemoryBroker(vhost=vhost)
    await one.apply(queue_of({}))
    await send(one, "from one")
    leases = await taken(two, "q")
    assert bodies(leases) == ["from one"]
    await two.close()
    assert leases[0].lost
    assert await one.depth("q") == 1
    assert one.clock is two.clock is clock


async def test_planned_faults_hit_the_next_publishes_to_their_exchange(
    broker: MemoryBroker,
) -> None:
    await broker.apply(queue_of({}))
    broker.faults.reject(times=2, exchange="door")
    broker.faults.lose(exchange="dead")
    broker.faults.lose(stored=True, exchange="door")
    broker.faults.lose(stored=False, exchange="door")
    for error in (
        PublishRejectedError,
        PublishRejectedError,
        OutcomeUnknownError,
        OutcomeUnknownError,
    ):
        with pytest.raises(error):
            await send(broker, "x")
    await send(broker, "passes")
    assert await broker.depth("q") == 2, "the stored one and the one that passed"


async def test_a_lost_connection_takes_its_deliveries_along(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    await broker.apply(queue_of({}))
    await send(broker, "x")
    leases: list[Lease] = []
    subscription = await broker.consume("q", leases.append, prefetch=1)
    await clock.advance(0)
    broker.faults.disconnect()
    assert subscription.state is SubscriptionState.FAILING
    assert subscription.failure == "the connection was lost"
    assert leases[0].lost
    assert not await leases[0].ack()
    waiting = asyncio.ensure_future(send(broker, "y"))
    await clock.advance(5.1)
    with pytest.raises(BrokerConnectionError, match="5 s"):
        await waiting
    broker.faults.reconnect()
    await subscription.ready(1)
    await clock.advance(0)
    assert (bodies(leases), leases[1].delivery.redelivered) == (["x", "x"], True)


async def test_a_subscription_made_while_disconnected_begins_at_the_reconnect(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    await broker.apply(queue_of({}))
    await send(broker, "x")
    broker.faults.disconnect()
    leases = await taken(broker, "q")
    assert leases == []
    for _ in range(2):
        broker.faults.reconnect()
    await clock.advance(0)
    assert bodies(leases) == ["x"]
    await send(broker, "y")
    await clock.advance(0)
    assert bodies(leases) == ["x", "y"]


async def test_an_interrupted_confirm_leaves_the_outcome_unknown(broker: MemoryBroker) -> None:
    await broker.apply(queue_of({}))
    publishing = asyncio.ensure_future(send(broker, "x"))
    await asyncio.sleep(0)
    broker.faults.disconnect()
    with pytest.raises(OutcomeUnknownError):
        await publishing


async def test_closing_wakes_who_waits_for_the_connection(broker: MemoryBroker) -> None:
    broker.faults.disconnect()
    waiting = asyncio.ensure_future(send(broker, "x"))
    await asyncio.sleep(0)
    await broker.close()
    with pytest.raises(BrokerConnectionError, match="closed"):
        await waiting
    broker.faults.reconnect()
    with pytest.raises(BrokerConnectionError, match="closed"):
        await broker.consume("q", lambda _: None, prefetch=1)


async def test_a_subscription_that_cannot_start_says_why(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    subscription = await broker.consume("nowhere", lambda _: None, prefetch=1)
    waiting = asyncio.ensure_future(subscription.ready(3))
    await clock.advance(3)
    with pytest.raises(BrokerError, match="nowhere"):
        await waiting
    waiting = asyncio.ensure_future(subscription.ready(3))
    await asyncio.sleep(0)
    await subscription.cancel()
    with pytest.raises(BrokerError, match="cancelled"):
        await waiting


async def test_deleting_a_queue_forgets_what_was_taken_from_it(broker: MemoryBroker) -> None:
    await broker.apply(queue_of(SAFE))
    await send(broker, "x")
    (lease,) = await taken(broker, "q")
    broker.vhost.delete_queue("q")
    assert await lease.release()
    assert await broker.depth("q") is None
    await broker.apply(queue_of(SAFE))
    assert await broker.depth("q") == 0


async def test_an_unknown_end_of_a_binding_is_named(broker: MemoryBroker) -> None:
    await broker.apply(queue_of({}))
    broker.vhost.delete_queue("q")
    planned = await broker.plan(queue_of({}))
    binding = next(change for change in planned if isinstance(change.subject, Binding))
    with pytest.raises(TopologyMissingError, match="q"):
        broker.vhost.declare(binding)


async def test_headers_of_one_delivery_are_not_those_of_another(broker: MemoryBroker) -> None:
    await broker.apply(queue_of({}))
    headers = {"kept": 1}
    await send(broker, "x", headers=headers)
    headers["kept"] = 2
    for _ in range(2):
        browser = await broker.browse("q")
        lease = await browser.get()
        assert lease is not None
        arrived = lease.delivery.properties.headers
        assert arrived["kept"] == 1
        arrived["kept"] = 3  # type: ignore[index]
        await browser.close()
