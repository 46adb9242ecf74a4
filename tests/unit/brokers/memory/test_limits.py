"""What does not fit, and what failed too often."""

import asyncio

import pytest

from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.errors import (
    PublishRejectedError,
)
from amqp_agents.topology.model import (
    Binding,
    Policy,
    Queue,
    QueueKind,
    Topology,
)
from tests.unit.brokers.memory.posting import (
    DOOR,
    GRAVES,
    bodies,
    queue_of,
    send,
    taken,
)


async def test_a_rejection_by_one_of_two_queues_leaves_the_copy_in_the_other(
    broker: MemoryBroker,
) -> None:
    await broker.apply(
        Topology(
            exchanges=(DOOR,),
            queues=(
                Queue(
                    "full", QueueKind.CLASSIC, {"x-max-length": 0, "x-overflow": "reject-publish"}
                ),
                Queue("open"),
            ),
            bindings=(Binding("door", "full", "k"), Binding("door", "open", "k")),
        )
    )
    with pytest.raises(PublishRejectedError):
        await send(broker, "half")
    assert (await broker.depth("full"), await broker.depth("open")) == (0, 1)


async def test_a_quorum_queue_takes_one_too_many_and_rejects_until_it_is_emptier(
    broker: MemoryBroker,
) -> None:
    await broker.apply(queue_of({"x-max-length": 5, "x-overflow": "reject-publish"}))
    for number in range(6):
        await send(broker, str(number))
    browser = await broker.browse("q")
    for left in (5, 4):
        with pytest.raises(PublishRejectedError):
            await send(broker, "rejected")
        lease = await browser.get()
        assert lease is not None
        assert await lease.ack()
        assert await broker.depth("q") == left
    await send(broker, "taken again")


async def test_a_limit_of_bytes_counts_bodies(broker: MemoryBroker) -> None:
    await broker.apply(queue_of({"x-max-length-bytes": 10, "x-overflow": "drop-head"}))
    for text in ("aaaa", "bbbb", "cccc"):
        await send(broker, text)
    assert bodies(await taken(broker, "q")) == ["bbbb", "cccc"]


async def test_a_limit_does_not_count_what_a_consumer_is_about_to_take(
    broker: MemoryBroker,
) -> None:
    await broker.apply(queue_of({"x-max-length": 1, "x-overflow": "drop-head"}))
    leases = await taken(broker, "q", prefetch=3)
    await asyncio.gather(*(send(broker, text) for text in "abcd"))
    await broker.clock.advance(0)
    assert bodies(leases) == ["a", "b", "c"]
    assert await broker.depth("q") == 1


async def test_without_a_limit_of_its_own_a_queue_allows_twenty_failures(
    broker: MemoryBroker,
) -> None:
    await broker.apply(queue_of({"x-dead-letter-exchange": "dead"}))
    await broker.apply(GRAVES)
    await send(broker, "poison")
    for _ in range(21):
        browser = await broker.browse("q")
        assert await browser.get() is not None
        await browser.close()
    assert (await broker.depth("q"), await broker.depth("graves")) == (0, 1)


async def test_a_policy_can_lift_the_limit(broker: MemoryBroker) -> None:
    await broker.apply(
        Topology(
            exchanges=(DOOR,),
            queues=(Queue("q"),),
            bindings=(Binding("door", "q", "k"),),
            policies=(Policy("unlimited", "^q$", {"delivery-limit": -1}),),
        )
    )
    await send(broker, "poison")
    for _ in range(60):
        browser = await broker.browse("q")
        assert await browser.get() is not None
        await browser.close()
    assert await broker.depth("q") == 1
