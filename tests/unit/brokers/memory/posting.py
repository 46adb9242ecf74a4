"""A door, a queue behind it, and what is in the queue."""

from typing import Any

from amqp_agents.brokers.base import Lease, Publishing
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.model import (
    Arguments,
    Binding,
    Exchange,
    ExchangeKind,
    Queue,
    QueueKind,
    Topology,
)

DOOR, DEAD = Exchange("door", ExchangeKind.DIRECT), Exchange("dead", ExchangeKind.FANOUT)
GRAVES = Topology(
    exchanges=(DEAD,), queues=(Queue("graves"),), bindings=(Binding("dead", "graves"),)
)
SAFE: Arguments = {
    "x-dead-letter-exchange": "dead",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def queue_of(settings: Arguments, kind: QueueKind = QueueKind.QUORUM) -> Topology:
    """The queue `q` behind `door`; `dead` leads nowhere yet."""
    return Topology(
        exchanges=(DOOR, DEAD),
        queues=(Queue("q", kind, settings),),
        bindings=(Binding("door", "q", "k"),),
    )


async def send(broker: MemoryBroker, text: str, **properties: Any) -> None:
    """Publish one message to `q`."""
    publishing = Publishing("door", "k", text.encode(), Properties(**properties))
    await broker.publish(publishing, timeout_seconds=5)


async def taken(broker: MemoryBroker, queue: str, prefetch: int = 100) -> list[Lease]:
    """Everything the queue hands out, in a list that goes on growing."""
    leases: list[Lease] = []
    await broker.consume(queue, leases.append, prefetch=prefetch)
    await broker.clock.advance(0)
    return leases


def bodies(leases: list[Lease]) -> list[str]:
    """What deliveries say."""
    return [lease.delivery.body.decode() for lease in leases]
