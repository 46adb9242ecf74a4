"""What time does: expiry, dead letters, and delays through the chain."""

import asyncio

from amqp_agents.brokers.base import Broker, SubscriptionState
from amqp_agents.topology.delays import delay_headers
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import (
    AgentSpec,
    Binding,
    Exchange,
    ExchangeKind,
    Queue,
    QueueKind,
    Topology,
)
from tests.conformance.waiting import LIMIT_SECONDS, Arrivals, body, send, until, until_depth

LATE_SECONDS = 2.0  # a busy machine; the broker itself is late by milliseconds


def expiring(**settings: str | int) -> Topology:
    """The queue `q` behind `door`, its dead letters in `graves`, by the key `dead`."""
    arguments = {f"x-{name.replace('_', '-')}": value for name, value in settings.items()}
    return Topology(
        exchanges=(Exchange("door", ExchangeKind.DIRECT), Exchange("dead", ExchangeKind.TOPIC)),
        queues=(
            Queue("q", settings={"x-dead-letter-exchange": "dead", **arguments}),
            Queue("graves"),
        ),
        bindings=(Binding("door", "q", "k"), Binding("dead", "graves", "#")),
    )


async def test_a_message_dies_when_its_queue_lets_it_live_no_longer(broker: Broker) -> None:
    await broker.apply(expiring(message_ttl=300))
    graves = Arrivals(broker)
    await broker.consume("graves", graves, prefetch=1)
    start = broker.clock.time()
    await send(broker, "door", "k", "old", priority=3, headers={"kept": 1})
    await broker.clock.advance(0.3)
    dead = (await graves.next()).delivery
    assert 0.29 <= graves.times[0] - start < 0.3 + LATE_SECONDS
    assert (dead.body, dead.exchange, dead.routing_key) == (b"old", "dead", "k")
    assert (dead.properties.priority, dead.properties.headers["kept"]) == (3, 1)
    (death,) = dead.properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("q", "expired", 1)
    assert dead.properties.headers["x-first-death-reason"] == "expired"
    await until_depth(broker, "q", 0)


async def test_a_message_dies_at_its_own_expiration_and_loses_it(broker: Broker) -> None:
    await broker.apply(expiring(dead_letter_routing_key="agent-id"))
    graves = Arrivals(broker)
    await broker.consume("graves", graves, prefetch=1)
    await send(broker, "door", "k", "old", expiration_ms=200)
    await broker.clock.advance(0.2)
    dead = (await graves.next()).delivery
    assert (dead.exchange, dead.routing_key) == ("dead", "agent-id")
    assert dead.properties.expiration_ms is None
    (death,) = dead.properties.headers["x-death"]
    assert (death["routing-keys"], death["original-expiration"]) == (["k"], "200")


async def test_the_shorter_of_two_lives_counts(broker: Broker) -> None:
    await broker.apply(expiring(message_ttl=200))
    graves = Arrivals(broker)
    await broker.consume("graves", graves, prefetch=1)
    await send(broker, "door", "k", "x", expiration_ms=60_000)
    await broker.clock.advance(0.2)
    assert body(await graves.next()) == "x"


async def test_a_message_expires_only_at_the_head_of_its_queue(broker: Broker) -> None:
    await broker.apply(expiring())
    await send(broker, "door", "k", "lives")
    await send(broker, "door", "k", "expires", expiration_ms=100)
    await broker.clock.advance(0.4)
    assert await broker.depth("q") == 2
    arrivals, graves = Arrivals(broker), Arrivals(broker)
    await broker.consume("graves", graves, prefetch=1)
    await broker.consume("q", arrivals, prefetch=10)
    assert body(await arrivals.next()) == "lives"
    assert body(await graves.next()) == "expires"
    assert arrivals.waiting == 0


async def test_what_a_consumer_holds_does_not_expire(broker: Broker) -> None:
    await broker.apply(expiring())
    arrivals, graves = Arrivals(broker), Arrivals(broker)
    await broker.consume("graves", graves, prefetch=1)
    subscription = await broker.consume("q", arrivals, prefetch=1)
    await send(broker, "door", "k", "held", expiration_ms=200)
    lease = await arrivals.next()
    await broker.clock.advance(0.4)
    assert await broker.depth("graves") == 0
    assert not lease.lost
    await subscription.cancel()
    assert await lease.release()
    assert body(await graves.next()) == "held"


async def test_without_a_dead_letter_exchange_an_expired_message_is_gone(broker: Broker) -> None:
    plain = expiring()
    await broker.apply(
        Topology(
            exchanges=plain.exchanges,
            queues=(Queue("q", settings={"x-message-ttl": 100}), Queue("graves")),
            bindings=plain.bindings,
        )
    )
    await send(broker, "door", "k", "old")
    await broker.clock.advance(0.1)
    await until_depth(broker, "q", 0)
    assert await broker.depth("graves") == 0


async def test_a_full_queue_that_drops_buries_the_oldest(broker: Broker) -> None:
    await broker.apply(expiring(max_length=1, overflow="drop-head"))
    graves = Arrivals(broker)
    await broker.consume("graves", graves, prefetch=10)
    for text in "abc":
        await send(broker, "door", "k", text)
    dead = await graves.some(2)
    assert [body(lease) for lease in dead] == ["a", "b"]
    assert dead[0].delivery.properties.headers["x-death"][0]["reason"] == "maxlen"
    assert await broker.depth("q") == 1


async def test_a_message_that_comes_round_without_being_rejected_is_dropped(
    broker: Broker,
) -> None:
    wheel = Topology(
        exchanges=(Exchange("door", ExchangeKind.DIRECT), Exchange("back", ExchangeKind.FANOUT)),
        queues=(
            Queue("q", settings={"x-dead-letter-exchange": "back", "x-message-ttl": 100}),
            Queue("witness"),
        ),
        bindings=(
            Binding("door", "q", "k"),
            Binding("back", "q"),
            Binding("back", "witness"),
        ),
    )
    await broker.apply(wheel)
    await send(broker, "door", "k", "round")
    await broker.clock.advance(0.1)
    await until_depth(broker, "witness", 1)
    await until_depth(broker, "q", 0)


async def test_a_rejected_message_may_come_round_as_often_as_it_likes(broker: Broker) -> None:
    wheel = Topology(
        exchanges=(Exchange("door", ExchangeKind.DIRECT),),
        queues=(Queue("q", settings={"x-dead-letter-exchange": "door"}),),
        bindings=(Binding("door", "q", "k"),),
    )
    await broker.apply(wheel)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    await send(broker, "door", "k", "round")
    for count in range(1, 4):
        assert await (await arrivals.next()).reject()
        again = await arrivals.next()
        (death,) = again.delivery.properties.headers["x-death"]
        assert (death["reason"], death["count"]) == ("rejected", count)
        assert await again.release()
    assert await (await arrivals.next()).ack()


async def test_a_queue_with_a_limited_life_goes_away_once_nobody_uses_it(broker: Broker) -> None:
    # A classic queue goes on time, a quorum queue at the next of its looks, every five seconds.
    short = Queue("short", QueueKind.CLASSIC, {"x-expires": 300})
    await broker.apply(Topology(queues=(short,)))
    subscription = await broker.consume("short", Arrivals(broker), prefetch=1)
    await subscription.ready(LIMIT_SECONDS)
    await broker.clock.advance(0.5)
    assert subscription.state is SubscriptionState.UP
    await subscription.close()
    await broker.clock.advance(0.4)

    async def gone() -> bool:  # asking for its depth would count as use
        return len(await broker.plan(Topology(queues=(short,)))) == 1

    await until(gone, "the queue is deleted")


async def test_delays_end_when_they_are_due_and_a_short_one_overtakes_a_long_one(
    broker: Broker,
) -> None:
    await broker.apply(standard_topology([AgentSpec("a"), AgentSpec("b")]))
    first, second = Arrivals(broker), Arrivals(broker)
    await broker.consume("agent.a", first, prefetch=10)
    await broker.consume("agent.b", second, prefetch=10)
    start = broker.clock.time()
    for agent, seconds in (("a", 7), ("a", 3), ("b", 3), ("a", 1), ("a", 0)):
        headers = delay_headers(seconds) | {"aa-attempt": 2}
        await send(broker, "agent.delay", agent, str(seconds), headers=headers)
    arrivals, _ = await asyncio.gather(first.some(4), broker.clock.advance(7.2))
    assert [body(lease) for lease in arrivals] == ["0", "1", "3", "7"]
    for seconds, at in zip((0, 1, 3, 7), first.times, strict=True):
        assert seconds - 0.02 <= at - start < seconds + LATE_SECONDS
    delivery = arrivals[1].delivery
    assert (delivery.exchange, delivery.routing_key) == ("agent.delay.exit", "a")
    assert delivery.properties.headers["aa-attempt"] == 2
    assert body(await second.next()) == "3"


async def test_a_delayed_message_to_nobody_is_kept_and_stalls_no_other(broker: Broker) -> None:
    await broker.apply(standard_topology([AgentSpec("a")]))
    for _ in range(40):
        await send(broker, "agent.delay", "nobody", "lost", headers=delay_headers(1))
    await send(broker, "agent.delay", "a", "found", headers=delay_headers(1))
    arrivals = Arrivals(broker)
    await broker.consume("agent.a", arrivals, prefetch=1)
    await broker.clock.advance(1.0)
    assert await arrivals.bodies(1) == ["found"]
    await until_depth(broker, "agent.lost", 40)
