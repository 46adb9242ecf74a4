"""Who gets which delivery, how it is settled, and what happens to it when nobody settles it."""

import asyncio

import pytest

from amqp_agents.brokers.base import Broker, SubscriptionState
from amqp_agents.errors import BrokerError
from amqp_agents.topology.model import Binding, Exchange, ExchangeKind, Queue, QueueKind, Topology
from tests.conformance.lab import Feature, Lab
from tests.conformance.waiting import (
    LIMIT_SECONDS,
    Arrivals,
    body,
    send,
    until,
    until_depth,
)

WORK = Topology(
    exchanges=(Exchange("work", ExchangeKind.DIRECT), Exchange("dead", ExchangeKind.FANOUT)),
    queues=(
        Queue("q", settings={"x-dead-letter-exchange": "dead", "x-delivery-limit": 10}),
        Queue("graves"),
    ),
    bindings=(Binding("work", "q", "q"), Binding("dead", "graves")),
)


async def fill(broker: Broker, *texts: str, **options: object) -> None:
    for text in texts:
        await send(broker, "work", "q", text, **options)


async def test_deliveries_come_in_the_order_of_their_publishes(broker: Broker) -> None:
    await broker.apply(WORK)
    texts = [str(number) for number in range(60)]
    await fill(broker, *texts[:30])
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=7)
    await fill(broker, *texts[30:])
    assert await arrivals.bodies(60) == texts


async def test_prefetch_bounds_what_is_unsettled(broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, *"abcde")
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=2)
    first, second = await arrivals.some(2)
    await until_depth(broker, "q", 3)
    assert arrivals.waiting == 0
    assert await second.ack()
    assert body(await arrivals.next()) == "c"
    assert await first.ack()
    assert body(await arrivals.next()) == "d"
    await until_depth(broker, "q", 1)
    assert arrivals.waiting == 0


async def test_competing_consumers_share_by_what_they_have_room_for(
    lab: Lab, broker: Broker
) -> None:
    await broker.apply(WORK)
    quick, slow, other = Arrivals(broker), Arrivals(broker), await lab.connect()
    for arrivals, client, prefetch in ((quick, broker, 6), (slow, other, 2)):
        subscription = await client.consume("q", arrivals, prefetch=prefetch)
        await subscription.ready(LIMIT_SECONDS)
    await fill(broker, *"abcdefghij")
    shares = [await quick.some(6), await slow.some(2)]
    assert sorted(body(lease) for share in shares for lease in share) == list("abcdefgh")
    await until_depth(broker, "q", 2)
    assert (quick.waiting, slow.waiting) == (0, 0)


async def test_an_acknowledged_delivery_is_forgotten(broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, "done")
    arrivals = Arrivals(broker)
    subscription = await broker.consume("q", arrivals, prefetch=1)
    lease = await arrivals.next()
    assert not lease.lost
    assert await lease.ack()
    await subscription.close()
    await until_depth(broker, "q", 0)
    assert await broker.depth("graves") == 0


async def test_a_rejected_delivery_goes_to_the_dead_letter_exchange(broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, "bad")
    arrivals, graves = Arrivals(broker), Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    await broker.consume("graves", graves, prefetch=1)
    assert await (await arrivals.next()).reject()
    dead = await graves.next()
    assert body(dead) == "bad"
    (death,) = dead.delivery.properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 1)
    assert (death["exchange"], death["routing-keys"]) == ("work", ["q"])


async def test_a_released_delivery_comes_again_for_any_consumer(lab: Lab, broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, "again")
    arrivals = Arrivals(broker)
    subscription = await broker.consume("q", arrivals, prefetch=1)
    await subscription.ready(LIMIT_SECONDS)
    first = await arrivals.next()
    assert not first.delivery.redelivered
    assert first.delivery.delivery_count in (None, 0)
    await subscription.cancel()
    assert await first.release()
    await broker.consume("q", arrivals, prefetch=1)
    second = await arrivals.next()
    assert (body(second), second.delivery.redelivered) == ("again", True)
    free = Feature.FREE_RELEASE in lab.features
    assert (second.delivery.delivery_count or 0) == (0 if free else 1)


async def test_what_comes_back_goes_before_what_never_went(broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, *"abcde")
    arrivals = Arrivals(broker)
    subscription = await broker.consume("q", arrivals, prefetch=3)
    await arrivals.some(3)
    await subscription.close()
    await until_depth(broker, "q", 5)
    await broker.consume("q", arrivals, prefetch=10)
    assert await arrivals.bodies(5) == list("abcde")


async def test_a_second_settlement_changes_nothing(broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, "once")
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    lease = await arrivals.next()
    assert await lease.ack()
    assert [await settle() for settle in (lease.ack, lease.reject, lease.release)] == [False] * 3
    assert not lease.lost
    await fill(broker, "next")
    assert await arrivals.bodies(1) == ["next"]
    assert await broker.depth("graves") == 0


async def test_after_cancel_nothing_comes_but_what_came_can_be_settled(broker: Broker) -> None:
    await broker.apply(WORK)
    arrivals = Arrivals(broker)
    subscription = await broker.consume("q", arrivals, prefetch=10)
    await fill(broker, *"abc")
    leases = await arrivals.some(3)
    await subscription.cancel()
    assert subscription.state is SubscriptionState.CANCELLED
    await fill(broker, "late")
    await until_depth(broker, "q", 1)
    assert arrivals.waiting == 0
    assert [await lease.ack() for lease in leases] == [True, True, True]
    await subscription.close()
    await broker.consume("q", arrivals, prefetch=10)
    rest = await arrivals.next()
    assert (body(rest), rest.delivery.redelivered) == ("late", False)
    assert await broker.depth("q") == 0


async def test_a_subscription_that_was_cancelled_early_takes_nothing_more(broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, "first")
    arrivals, others = Arrivals(broker), Arrivals(broker)
    at_once = await broker.consume("q", others, prefetch=1)
    await at_once.cancel()
    early = await broker.consume("q", arrivals, prefetch=1)
    lease = await arrivals.next()  # it may come before the broker says that we consume
    await early.cancel()
    assert await lease.release()
    await broker.consume("q", others, prefetch=10)
    await fill(broker, "second")
    assert sorted(await others.bodies(2)) == ["first", "second"]


async def test_closing_hands_back_everything_unsettled(broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, *"abc")
    arrivals = Arrivals(broker)
    subscription = await broker.consume("q", arrivals, prefetch=10)
    first, second, _ = await arrivals.some(3)
    assert await first.ack()
    await subscription.close()
    await subscription.close()
    await until_depth(broker, "q", 2)
    assert second.lost
    assert not await second.ack()
    await broker.consume("q", arrivals, prefetch=10)
    again = await arrivals.some(2)
    assert [body(lease) for lease in again] == ["b", "c"]
    assert all(lease.delivery.redelivered for lease in again)


async def test_closing_the_broker_hands_back_everything(lab: Lab, broker: Broker) -> None:
    await broker.apply(WORK)
    await fill(broker, *"ab")
    other = await lab.connect()
    taken, arrivals = Arrivals(other), Arrivals(broker)
    await other.consume("q", taken, prefetch=10)
    (lease, _) = await taken.some(2)
    await other.close()
    assert not await lease.ack()
    await broker.consume("q", arrivals, prefetch=10)
    assert await arrivals.bodies(2) == ["a", "b"]


async def test_a_message_that_kills_its_consumers_ends_at_the_delivery_limit(
    broker: Broker,
) -> None:
    deadly = Queue("q", settings={"x-dead-letter-exchange": "dead", "x-delivery-limit": 2})
    await broker.apply(
        Topology(exchanges=WORK.exchanges, queues=(deadly, Queue("graves")), bindings=WORK.bindings)
    )
    await fill(broker, "poison")
    arrivals, graves = Arrivals(broker), Arrivals(broker)
    counts = []
    for _ in range(3):
        subscription = await broker.consume("q", arrivals, prefetch=1)
        counts.append((await arrivals.next()).delivery.delivery_count or 0)
        await subscription.close()
    assert counts == [0, 1, 2]
    await broker.consume("graves", graves, prefetch=1)
    dead = await graves.next()
    assert dead.delivery.properties.headers["x-death"][0]["reason"] == "delivery_limit"


async def test_a_subscription_waits_for_its_queue(broker: Broker) -> None:
    arrivals = Arrivals(broker)
    subscription = await broker.consume("q", arrivals, prefetch=1)
    with pytest.raises(BrokerError, match="q"):
        await subscription.ready(0.2)
    assert subscription.state is SubscriptionState.FAILING
    assert subscription.failure is not None
    assert "q" in subscription.failure
    await broker.apply(WORK)
    await subscription.ready(LIMIT_SECONDS)
    assert subscription.failure is None
    await fill(broker, "found")
    assert await arrivals.bodies(1) == ["found"]


async def test_a_subscription_outlives_its_queue(lab: Lab, broker: Broker) -> None:
    await broker.apply(WORK)
    arrivals = Arrivals(broker)
    subscription = await broker.consume("q", arrivals, prefetch=1)
    await subscription.ready(LIMIT_SECONDS)
    await lab.delete_queue("q")

    async def failing() -> bool:
        return subscription.state is SubscriptionState.FAILING

    await until(failing, "the subscription notices")
    await broker.apply(WORK)
    await subscription.ready(LIMIT_SECONDS)
    await fill(broker, "found")
    assert await arrivals.bodies(1) == ["found"]


async def test_after_a_lost_connection_deliveries_come_again(lab: Lab, broker: Broker) -> None:
    await broker.apply(WORK)
    async with lab.breakable() as (client, way):
        arrivals = Arrivals(client)
        subscription = await client.consume("q", arrivals, prefetch=1)
        await fill(broker, *"ab")
        lease = await arrivals.next()
        way.lose()

        async def lost() -> bool:
            return lease.lost and subscription.state is SubscriptionState.FAILING

        await until(lost, "the client notices")
        assert not await lease.ack()
        way.restore()
        await subscription.ready(LIMIT_SECONDS)
        again = await arrivals.next()
        assert (body(again), again.delivery.redelivered) == ("a", True)
        assert await again.ack()
        assert await arrivals.bodies(1) == ["b"]


async def test_a_handler_that_raises_at_hand_over_stops_nobody(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.apply(WORK)
    arrivals = Arrivals(broker)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)

    def faulty(lease: object) -> None:
        arrivals(lease)  # type: ignore[arg-type]
        raise ValueError("a fault of ours")

    await broker.consume("q", faulty, prefetch=10)
    await fill(broker, *"ab")
    assert await arrivals.bodies(2) == ["a", "b"]


async def test_priorities_as_far_as_the_version_has_them(lab: Lab, broker: Broker) -> None:
    await broker.apply(WORK)
    sent = [("b4", 4), ("c0", 0), ("a8", 8), ("b-", None), ("a5", 5), ("c0 too", 0), ("a8 too", 8)]
    for text, priority in sent:
        await send(broker, "work", "q", text, priority=priority)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    got = await arrivals.bodies(len(sent))
    if Feature.STRICT_PRIORITIES in lab.features:
        assert got == ["a8", "a8 too", "a5", "b4", "b-", "c0", "c0 too"]
    elif Feature.PRIORITY_CLASSES in lab.features:  # two of the urgent class for one other
        assert [text for text in got if text[0] == "a"] == ["a8", "a5", "a8 too"]
        assert [text for text in got if text[0] != "a"] == ["b4", "c0", "b-", "c0 too"]
        assert got[0] == "a8"
    else:
        assert got == [text for text, _ in sent]


async def test_a_classic_queue_has_the_priorities_it_was_declared_with(broker: Broker) -> None:
    await broker.apply(
        Topology(
            exchanges=WORK.exchanges[:1],
            queues=(Queue("q", QueueKind.CLASSIC, {"x-max-priority": 5}),),
            bindings=WORK.bindings[:1],
        )
    )
    for text, priority in (("none", None), ("low", 1), ("above", 9), ("high", 5), ("low 2", 1)):
        await send(broker, "work", "q", text, priority=priority)
    await until_depth(broker, "q", 5)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    assert await arrivals.bodies(5) == ["above", "high", "low", "low 2", "none"]


async def test_of_a_queue_with_a_single_active_consumer_only_one_gets_deliveries(
    lab: Lab, broker: Broker
) -> None:
    single = Queue("q", settings={"x-single-active-consumer": True})
    await broker.apply(
        Topology(exchanges=WORK.exchanges[:1], queues=(single,), bindings=WORK.bindings[:1])
    )
    active, standby = Arrivals(broker), Arrivals(broker)
    first = await broker.consume("q", active, prefetch=2)
    await first.ready(LIMIT_SECONDS)
    second = await broker.consume("q", standby, prefetch=2)
    await second.ready(LIMIT_SECONDS)
    await fill(broker, *"abc")
    assert [body(lease) for lease in await active.some(2)] == ["a", "b"]
    await until_depth(broker, "q", 1)
    assert standby.waiting == 0
    await first.close()
    assert sorted(await standby.bodies(3)) == ["a", "b", "c"]
