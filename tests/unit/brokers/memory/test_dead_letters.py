"""Dead letters that find no target, and exchanges that get their alternate by a policy."""

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.clock import ManualClock
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.model import (
    Arguments,
    Binding,
    Exchange,
    ExchangeKind,
    Policy,
    Queue,
    QueueKind,
    Topology,
)
from tests.unit.brokers.memory.posting import (
    DEAD,
    DOOR,
    GRAVES,
    SAFE,
    bodies,
    queue_of,
    send,
    taken,
)


async def test_a_dead_letter_without_a_target_waits_for_one(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    await broker.apply(queue_of(SAFE))
    await send(broker, "kept")
    (lease,) = await taken(broker, "q")
    assert await lease.reject()
    await broker.apply(GRAVES)
    await clock.advance(179)
    assert await broker.depth("graves") == 0
    await clock.advance(1)
    assert bodies(await taken(broker, "graves")) == ["kept"]


async def test_thirty_two_dead_letters_without_a_target_stall_the_others(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    topology = Topology(
        exchanges=(DOOR, Exchange("dead", ExchangeKind.DIRECT)),
        queues=(Queue("q", settings={**SAFE, "x-message-ttl": 1000}), Queue("graves")),
        bindings=(
            Binding("door", "q", "k"),
            Binding("door", "q", "lost"),
            Binding("dead", "graves", "k"),
        ),
    )
    await broker.apply(topology)
    for _ in range(32):
        lost = Publishing("door", "lost", b"lost", Properties())
        await broker.publish(lost, timeout_seconds=5)
    await send(broker, "stalled")
    await clock.advance(170)
    assert await broker.depth("graves") == 0
    await broker.apply(
        Topology(
            exchanges=topology.exchanges,
            queues=topology.queues,
            bindings=(*topology.bindings, Binding("dead", "graves", "lost")),
        )
    )
    await clock.advance(180)
    assert await broker.depth("graves") == 33


async def test_a_dead_letter_that_a_full_queue_rejects_is_kept(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    await broker.apply(queue_of({**SAFE, "x-message-ttl": 1000}))
    full: Arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    await broker.apply(
        Topology(
            exchanges=(DEAD,),
            queues=(Queue("small", QueueKind.CLASSIC, full), Queue("large")),
            bindings=(Binding("dead", "small"), Binding("dead", "large")),
        )
    )
    await send(broker, "x")
    await clock.advance(1)
    assert (await broker.depth("small"), await broker.depth("large")) == (0, 1)
    leases = await taken(broker, "small", prefetch=1)
    await clock.advance(180)
    assert bodies(leases) == ["x"]
    assert await broker.depth("large") == 1, "it took its copy the first time"


async def test_a_policy_gives_an_exchange_its_alternate(broker: MemoryBroker) -> None:
    await broker.apply(
        Topology(
            exchanges=(DOOR, DEAD),
            queues=(Queue("graves"),),
            bindings=(Binding("dead", "graves"),),
            policies=(
                Policy("spare", "^door$", {"alternate-exchange": "dead"}, apply_to="exchanges"),
            ),
        )
    )
    await send(broker, "to nobody")
    assert await broker.depth("graves") == 1
