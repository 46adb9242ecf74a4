"""Lost connections, channels and queues: what comes back, what is lost, what is said."""

import asyncio
import time
from collections import Counter
from itertools import count
from urllib.parse import quote, urlsplit

import pytest

from amqp_agents.brokers.base import Lease, Publishing, SubscriptionState
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.brokers.rabbitmq.channels import CHANNELS
from amqp_agents.brokers.rabbitmq.replies import RabbitMQReplies
from amqp_agents.errors import BrokerConnectionError, BrokerError, OutcomeUnknownError
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import Queue, Topology
from tests.conformance.waiting import Arrivals, body, send, until, until_depth
from tests.nodes.endpoint import Endpoint
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq


def work(text: str = "x") -> Publishing:
    return Publishing("work", "work", text.encode(), Properties())


async def close_connections(rabbitmq: Endpoint, vhost_url: str, names: set[str]) -> None:
    """Close the named connections by the management API, as an operator would."""
    vhost = urlsplit(vhost_url).path[1:]
    call = rabbitmq.management.call

    async def closed() -> bool:
        found = await asyncio.to_thread(call, "GET", f"vhosts/{vhost}/connections")
        wanted = {
            each["name"]
            for each in found
            if each.get("client_properties", {}).get("connection_name") in names
        }
        if len(wanted) < len(names):
            return False  # the listing shows new connections some seconds late
        for name in wanted:
            await asyncio.to_thread(call, "DELETE", f"connections/{quote(name, safe='')}")
        return True

    await until(closed, f"connections {names} to close")


class Traffic:
    """Publishes without a pause and handles what arrives, through whatever happens."""

    def __init__(self, broker: RabbitMQBroker) -> None:
        self.confirmed: set[str] = set()
        self.unknown = 0
        self.received: Counter[str] = Counter()
        self.handling: list[asyncio.Task[None]] = []
        self._broker, self._ended = broker, False
        self._publishing = [asyncio.create_task(self._publish(each)) for each in range(20)]

    def on_delivery(self, lease: Lease) -> None:
        self.handling.append(asyncio.create_task(self._handle(lease)))

    async def end(self) -> None:
        self._ended = True
        await asyncio.gather(*self._publishing)

    async def _publish(self, worker: int) -> None:
        for number in count():
            if self._ended:
                return
            text = f"{worker}/{number}"
            try:
                await self._broker.publish(work(text), timeout_seconds=10)
                self.confirmed.add(text)
            except OutcomeUnknownError:
                self.unknown += 1

    async def _handle(self, lease: Lease) -> None:
        await asyncio.sleep(0.02)
        self.received[body(lease)] += 1
        await lease.ack()


async def test_a_forced_close_loses_no_confirmed_message_and_cancels_no_handler(
    broker: RabbitMQBroker, rabbitmq: Endpoint, vhost_url: str
) -> None:
    traffic = Traffic(broker)
    subscription = await broker.consume("work", traffic.on_delivery, prefetch=50)
    await subscription.ready(10)
    for _ in range(2):
        await close_connections(rabbitmq, vhost_url, {"test/publish", "test/consume"})
        await subscription.ready(10)
    await traffic.end()
    await until_depth(broker, "work", 0)
    await asyncio.gather(*traffic.handling)
    assert len(traffic.confirmed) > 100
    assert traffic.confirmed <= set(traffic.received)
    assert not [task for task in traffic.handling if task.cancelled()]


async def test_the_settlement_of_a_lost_delivery_answers_false_and_is_counted(
    broker: RabbitMQBroker, proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    arrivals = Arrivals(proxied)
    await (await proxied.consume("work", arrivals, prefetch=1)).ready(10)
    await send(broker, "work", "work", "first")
    lease = await arrivals.next()
    assert not lease.lost
    proxy.reset()
    again = await arrivals.next()
    assert lease.lost
    assert not await lease.ack()
    assert proxied.lost_settlements == 1
    assert again.delivery.redelivered
    assert await again.ack()
    assert not await again.ack()
    assert proxied.lost_settlements == 1


async def test_a_publish_ends_in_time_when_nothing_is_answered(
    proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    for _ in range(CHANNELS):
        await proxied.publish(work(), timeout_seconds=10)
    proxy.black_hole()
    began = time.monotonic()
    answers = await asyncio.gather(
        *(proxied.publish(work(), timeout_seconds=3) for _ in range(20)), return_exceptions=True
    )
    assert 2.9 < time.monotonic() - began < 3.3
    assert {type(answer) for answer in answers} == {OutcomeUnknownError}


async def test_a_publish_ends_in_time_when_there_is_no_broker(
    proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    proxy.refuse()
    proxy.reset()
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match=r"not sent within 3 s: .*(lost|refused)"):
        await proxied.publish(work(), timeout_seconds=3)
    assert 2.9 < time.monotonic() - began < 3.3


async def test_a_publish_waits_for_the_connection_to_come_back(
    proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    proxy.refuse()
    proxy.reset()
    publishing = asyncio.create_task(proxied.publish(work(), timeout_seconds=15))
    await asyncio.sleep(0)
    proxy.heal()
    await publishing


async def test_calls_that_wait_for_room_to_write_end_with_the_connection(
    broker: RabbitMQBroker, proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    """The library queues ten frames; behind them callers would wait for ever."""
    arrivals = Arrivals(proxied)
    subscription = await proxied.consume("work", arrivals, prefetch=100)
    await subscription.ready(10)
    await asyncio.gather(*(send(broker, "work", "work", "x") for _ in range(60)))
    leases = await arrivals.some(60)
    proxy.stall()
    big = Publishing("work", "work", b"x" * 1_000_000, Properties())
    publishing = [asyncio.create_task(proxied.publish(big, timeout_seconds=60)) for _ in range(40)]
    settling = [asyncio.create_task(lease.ack()) for lease in leases]
    await asyncio.sleep(0.2)
    proxy.refuse()
    proxy.reset()
    began = time.monotonic()
    settled = await asyncio.wait_for(asyncio.gather(*settling), 10)
    proxy.heal()
    answers = await asyncio.wait_for(asyncio.gather(*publishing, return_exceptions=True), 20)
    assert time.monotonic() - began < 10
    assert settled.count(False) == proxied.lost_settlements
    assert {type(answer) for answer in answers} <= {OutcomeUnknownError, type(None)}


async def test_a_missing_queue_is_named_and_consumed_once_it_exists(
    broker: RabbitMQBroker,
) -> None:
    arrivals = Arrivals(broker)
    subscription = await broker.consume("late", arrivals, prefetch=1)
    with pytest.raises(BrokerError, match="queue 'late' does not exist: run 'amqp-agents"):
        await subscription.ready(0.5)
    assert subscription.state is SubscriptionState.FAILING
    assert subscription.failure is not None
    await broker.apply(Topology(queues=(Queue("late"),)))
    await subscription.ready(15)
    assert (subscription.state, subscription.failure) == (SubscriptionState.UP, None)
    await send(broker, "", "late", "found")
    assert body(await arrivals.next()) == "found"


async def test_a_deleted_queue_stops_its_own_consumer_only(
    broker: RabbitMQBroker, rabbitmq: Endpoint, vhost_url: str
) -> None:
    await broker.apply(Topology(queues=(Queue("other"),)))
    arrivals, others = Arrivals(broker), Arrivals(broker)
    doomed = await broker.consume("work", arrivals, prefetch=1)
    healthy = await broker.consume("other", others, prefetch=1)
    await doomed.ready(10)
    await healthy.ready(10)
    vhost = urlsplit(vhost_url).path[1:]
    await asyncio.to_thread(rabbitmq.management.call, "DELETE", f"queues/{vhost}/work")

    async def failing() -> bool:
        return "does not exist" in (doomed.failure or "")

    await until(failing, "the consumer of the deleted queue to say so")
    await send(broker, "", "other", "still here")
    assert body(await others.next()) == "still here"
    assert healthy.state is SubscriptionState.UP
    await broker.apply(Topology(queues=(Queue("work"),)))
    await doomed.ready(15)


async def test_a_cancelled_subscription_settles_what_it_has_and_gets_nothing_new(
    broker: RabbitMQBroker,
) -> None:
    arrivals = Arrivals(broker)
    subscription = await broker.consume("work", arrivals, prefetch=3)
    await asyncio.gather(*(send(broker, "work", "work", str(each)) for each in range(5)))
    leases = await arrivals.some(3)
    await subscription.cancel()
    assert subscription.state is SubscriptionState.CANCELLED
    assert await leases[0].ack()
    await until_depth(broker, "work", 2)
    assert arrivals.waiting == 0
    await subscription.close()
    await until_depth(broker, "work", 4)
    assert not await leases[1].ack()
    with pytest.raises(BrokerError, match="cancelled"):
        await subscription.ready(1)


@pytest.mark.parametrize("turns", range(0, 40, 4))
async def test_a_cancel_while_subscribing_leaves_no_consumer_behind(
    broker: RabbitMQBroker, turns: int
) -> None:
    await send(broker, "work", "work", "x")
    arrivals = Arrivals(broker)
    early = await broker.consume("work", arrivals, prefetch=1)
    for _ in range(turns):
        await asyncio.sleep(0)
    await early.cancel()
    assert early.state is SubscriptionState.CANCELLED
    taken = arrivals.waiting
    await early.close()
    await broker.consume("work", arrivals, prefetch=1)
    assert [body(lease) for lease in await arrivals.some(taken + 1)] == ["x"] * (taken + 1)


async def test_replies_reach_the_new_connection_while_the_old_one_is_half_open(
    broker: RabbitMQBroker, proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    await broker.apply(standard_topology([]))
    arrivals = Arrivals(proxied)
    replies = await proxied.open_replies("instance", arrivals)
    await send(broker, "agent.reply", "instance", "before")
    assert await arrivals.bodies(1) == ["before"]
    proxy.half_open()
    began = time.monotonic()

    assert isinstance(replies, RabbitMQReplies)

    async def consumed_again() -> bool:
        return replies.subscription.epoch == 2

    await until(consumed_again, "the new connection, while the broker holds the old one too")
    for number in range(20):
        await send(broker, "agent.reply", "instance", str(number))
    assert await arrivals.bodies(20) == [str(number) for number in range(20)]
    assert time.monotonic() - began < 5
    await replies.close()


async def test_direct_replies_are_restored_with_the_connection(
    broker: RabbitMQBroker, proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    asked, answered = Arrivals(broker), Arrivals(proxied)
    await (await broker.consume("work", asked, prefetch=10)).ready(10)
    replies = await proxied.open_replies("instance", answered, direct=True)
    assert isinstance(replies, RabbitMQReplies)
    for epoch, attempt in enumerate(("first", "second"), start=1):

        async def restored(epoch: int = epoch) -> bool:
            return replies.subscription.epoch == epoch

        await until(restored, f"connection {epoch}")
        request = Publishing("work", "work", b"?", Properties(reply_to=replies.address))
        await replies.publish(request, timeout_seconds=15)
        lease = await asked.next()
        token = lease.delivery.properties.reply_to
        assert token is not None
        assert token.startswith("amq.rabbitmq.reply-to.")
        await lease.ack()
        await send(broker, "", token, attempt, mandatory=False)
        assert await answered.bodies(1) == [attempt]
        proxy.reset()
    await replies.close()
