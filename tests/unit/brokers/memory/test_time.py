"""When things happen: at a moved clock, always in the same order."""

import asyncio

import pytest

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.clock import ManualClock
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.delays import MAX_DELAY_SECONDS, delay_headers
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import (
    AgentSpec,
)
from tests.unit.brokers.memory.posting import (
    GRAVES,
    SAFE,
    bodies,
    queue_of,
    send,
    taken,
)


async def test_a_publish_returns_before_anybody_is_handed_the_message(
    broker: MemoryBroker,
) -> None:
    await broker.apply(queue_of({}))
    order: list[str] = []
    await broker.consume("q", lambda _: order.append("handed over"), prefetch=1)
    publishing = asyncio.ensure_future(send(broker, "x"))
    publishing.add_done_callback(lambda _: order.append("confirmed"))
    await publishing
    await broker.clock.advance(0)
    assert sorted(order) == ["confirmed", "handed over"]


async def test_a_loop_of_publishes_leaves_consumers_their_turn(broker: MemoryBroker) -> None:
    await broker.apply(queue_of({}))
    leases = await taken(broker, "q")
    for number in range(10):
        await send(broker, str(number))
    assert len(leases) >= 9


async def test_the_longest_delay_ends_to_the_second(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    await broker.apply(standard_topology([AgentSpec("a")]))
    start, times = clock.time(), []
    await broker.consume("agent.a", lambda _: times.append(clock.time() - start), prefetch=10)
    for seconds in (MAX_DELAY_SECONDS, 1, 86_399):
        properties = Properties(headers=delay_headers(seconds))
        await broker.publish(Publishing("agent.delay", "a", b"", properties), timeout_seconds=5)
    await clock.advance(MAX_DELAY_SECONDS + 1)
    assert times == pytest.approx([1, 86_399, MAX_DELAY_SECONDS], abs=0.01)


async def test_the_same_steps_give_the_same_deliveries(clock: ManualClock) -> None:
    async def run() -> list[str]:
        broker = MemoryBroker(clock=clock)
        await broker.apply(queue_of({"x-message-ttl": 500, **SAFE}))
        await broker.apply(GRAVES)
        leases, dead = await taken(broker, "q", prefetch=2), await taken(broker, "graves")
        for number in range(9):
            await send(broker, str(number), priority=number % 3)
        await leases[1].release()
        await clock.advance(1)
        return bodies(leases) + bodies(dead)

    first = await run()
    assert len(first) > 9
    assert [await run() for _ in range(3)] == [first] * 3


async def test_a_message_without_any_time_lives_only_for_a_waiting_consumer(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    await broker.apply(queue_of({"x-message-ttl": 0}))
    await send(broker, "nobody waits")
    await clock.advance(0.01)
    assert await broker.depth("q") == 0
    leases = await taken(broker, "q", prefetch=1)
    await send(broker, "in time")
    await clock.advance(0.01)
    assert bodies(leases) == ["in time"]


async def test_of_each_priority_the_oldest_may_expire(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    await broker.apply(queue_of({}))
    await send(broker, "urgent", priority=9)
    await send(broker, "expires", expiration_ms=100)
    await send(broker, "behind")
    await send(broker, "hidden", expiration_ms=100)
    await clock.advance(1)
    assert await broker.depth("q") == 3
    assert bodies(await taken(broker, "q")) == ["urgent", "behind"]
