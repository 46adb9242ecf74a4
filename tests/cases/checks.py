"""What must hold after every odd message: CANARY, SETTLED, BOUNDED, TOLD."""

from dataclasses import dataclass
from typing import Any

from amqp_agents.pipeline import Delivery
from amqp_agents.topology import names
from tests.cases.stage import Stage, message, until

CANARY_SECONDS = 5.0
RECONNECT_SECONDS = 10.0

COUNTERS = {
    "delivery_dead": "dead_letters_total",
    "delivery_unsettled": "unsettled_total",
    "property_unreadable": "unreadable_total",
}


@dataclass(slots=True)
class Odd:
    """An odd message, and how things stood before it was sent."""

    stage: Stage
    agent: str
    body: bytes
    message_id: str | None
    records: int
    connections: int
    counters: dict[str, float]


def odd(stage: Stage, agent: str, body: bytes, message_id: str | None = None) -> Odd:
    """Note how things stand before an odd message is sent to the agent."""
    return Odd(
        stage,
        agent,
        body,
        message_id,
        records=len(stage.told.records),
        connections=stage.broker.connections,
        counters={name: total(stage, agent, name) for name in COUNTERS.values()},
    )


async def canary(stage: Stage, agent: str, seconds: float = CANARY_SECONDS) -> None:
    """CANARY: a normal message to the same queue afterwards is handled in time.

    With one handler at a time it also proves that nothing else is unsettled on the consumer.
    """
    after = message(agent)
    await stage.caller.publish(after)
    await until(
        lambda: stage.journal.count("handled", after.message_id) == 1,
        f"the canary of {agent} handled",
        seconds,
    )


async def settled(case: Odd, where: str) -> Delivery | None:
    """SETTLED: the odd message is in one place only: handled, or a dead letter, or lost's.

    `where` is "handled", "dead" or "lost"; returns the copy that rests there. Nothing of the
    agent's is ready or unsettled.
    """
    stage, queue = case.stage, names.inbox(case.agent)
    dead, lost = names.dead_letter_queue(case.agent), names.LOST

    async def resting() -> dict[str, list[Delivery]]:
        seen = {"dead": await stage.waiting(dead), "lost": await stage.waiting(lost)}
        return {key: [d for d in found if d.body == case.body] for key, found in seen.items()}

    async def empty() -> bool:
        running = stage.counted("handlings", agent=case.agent)
        return running == 0 and await stage.depth(queue) == 0

    await until(empty, f"{queue} empty, and nobody at work")
    found = await resting()
    handled = _handled(case)
    counts = {"handled": handled, "dead": len(found["dead"]), "lost": len(found["lost"])}
    assert counts == {**dict.fromkeys(counts, 0), where: 1}, counts
    return found[where][0] if where in found else None


def bounded(case: Odd, deliveries: int = 1) -> None:
    """BOUNDED: delivered at most so often, in no loop, and without a connection lost."""
    assert case.stage.broker.deliveries[case.body] <= deliveries
    assert case.stage.broker.connections == case.connections
    told = [r.getMessage() for r in case.stage.told.records[case.records :]]
    assert not [line for line in told if line.startswith(("connection_lost", "consumer_failing"))]


def told(case: Odd, reason: str, event: str = "delivery_dead") -> dict[str, Any]:
    """TOLD: one log record and one count say queue, message id if known, and the reason."""
    records = [
        record
        for record in case.stage.told.records[case.records :]
        if getattr(record, "event", "") == event and _about(case, record)
    ]
    assert len(records) == 1, [record.getMessage() for record in records]
    fields: dict[str, Any] = records[0].fields  # type: ignore[attr-defined]
    assert fields["queue"] == names.inbox(case.agent)
    assert fields.get("message_id") == case.message_id
    assert reason in fields["reason"]
    counter = COUNTERS[event]
    assert total(case.stage, case.agent, counter) == case.counters[counter] + 1
    return fields


def not_told(case: Odd, *events: str) -> None:
    """Nothing of this was said about the message."""
    said = [getattr(record, "event", "") for record in case.stage.told.records[case.records :]]
    assert not set(events) & set(said), said


async def nothing_left(stage: Stage, *agents: str) -> None:
    """SETTLED, for the whole run: once consuming has ended, no inbox holds anything."""
    await stage.stop()
    left = {agent: await stage.depth(names.inbox(agent)) for agent in agents}
    assert left == dict.fromkeys(agents, 0)


def total(stage: Stage, agent: str, counter: str) -> float:
    """A counter of one agent, over all its other labels."""
    families = stage.app.telemetry.metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples]
    return sum(
        each.value
        for each in samples
        if each.name == f"amqp_agents_{counter}" and each.labels.get("agent") == agent
    )


def _handled(case: Odd) -> int:
    if case.message_id is None:
        return 0
    return case.stage.journal.count("handled", case.message_id)


def _about(case: Odd, record: Any) -> bool:
    known = case.message_id
    return known is None or record.fields.get("message_id") == known
