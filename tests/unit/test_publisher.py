import asyncio
from typing import Any

import pytest

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.clock import ManualClock
from amqp_agents.config import Settings
from amqp_agents.errors import (
    BrokerConnectionError,
    ExpiredMessageError,
    InvalidPayloadError,
    OutcomeUnknownError,
    PermissionDeniedError,
    PublishRejectedError,
    UnroutableMessageError,
)
from amqp_agents.observability import Telemetry
from amqp_agents.protocol import AgentMessage, MessageType, Policy, decode
from amqp_agents.publisher import AsyncPublisher, destination_of, reply_destination
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import AgentSpec
from tests.unit.stage import Recorder, within

SPECS = [AgentSpec("a", events=("x.#",))]


class Desk:
    """A publisher on a broker of its own, with what is in its reach."""

    def __init__(self, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock(frozen=True)
        self.broker = MemoryBroker(clock=self.clock, max_body_bytes=10_000_000)
        self.journal = Recorder()
        self.telemetry = Telemetry(journal=self.journal, clock=self.clock)
        self.publisher = AsyncPublisher(
            self.broker, settings=Settings(**settings), telemetry=self.telemetry
        )

    def message(self, **fields: Any) -> AgentMessage:
        given = {"sender": "s", "recipient": "a", "message_type": "direct"} | fields
        return AgentMessage(**given)

    async def inbox(self) -> list[Any]:
        browser = await self.broker.browse("agent.a")
        found = []
        while (lease := await browser.get()) is not None:
            found.append(lease.delivery)
        await browser.close()
        return found

    async def during(self, seconds: float, publishing: Any) -> Any:
        task = asyncio.ensure_future(publishing)
        await self.clock.advance(seconds)
        return await within(task)

    def counted(self, exchange: str, answer: str) -> float:
        value: float = self.telemetry.metrics.publishes.labels(exchange, answer)._value.get()
        return value


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.broker.apply(standard_topology(SPECS))
    return desk


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({}, ("agent.direct", "a", True, True)),
        ({"message_type": "request"}, ("agent.direct", "a", True, True)),
        ({"message_type": "event"}, ("agent.direct", "a", True, True)),
        (
            {"message_type": "event", "recipient": None, "intent": "x.closed"},
            ("agent.events", "event.x.closed", False, False),
        ),
        ({"message_type": "event", "recipient": None}, ("agent.events", "event", False, False)),
        (
            {"message_type": "broadcast", "recipient": None, "intent": "x"},
            ("agent.events", "broadcast.x", False, False),
        ),
        (
            {"message_type": "broadcast", "recipient_mode": "broadcast", "intent": "x"},
            ("agent.events", "broadcast.x", False, False),
        ),
        (
            {"message_type": "heartbeat", "recipient": None, "intent": "any"},
            ("agent.events", "event.heartbeat", False, False),
        ),
    ],
)
def test_the_envelope_says_where_a_message_goes(
    fields: dict[str, Any], where: tuple[str, str, bool, bool]
) -> None:
    found = destination_of(Desk().message(**fields))
    assert (found.exchange, found.routing_key, found.mandatory, found.expires) == where


def test_what_is_highly_sensitive_is_never_told_to_everybody() -> None:
    secret = Policy(sensitivity="high")
    with pytest.raises(PermissionDeniedError, match="never broadcast"):
        destination_of(Desk().message(message_type="broadcast", recipient=None, policy=secret))


@pytest.mark.parametrize(
    "address",
    ["agent.reply.", "agent.reply", "agent.replyx.1", "amq.gen-1", "https://x/", "", "agent.a"],
)
def test_a_reply_address_that_is_not_ours_is_refused(address: str) -> None:
    with pytest.raises(PermissionDeniedError, match=r"is not a reply queue of ours \(agent\.reply"):
        reply_destination(address)


def test_a_reply_goes_to_the_instance_that_asked() -> None:
    found = reply_destination("agent.reply.3f2a")
    assert (found.exchange, found.routing_key, found.mandatory) == ("agent.reply", "3f2a", True)


def test_a_token_of_the_brokers_own_leads_straight_to_the_caller() -> None:
    found = reply_destination("amq.rabbitmq.reply-to.abc")
    assert (found.exchange, found.routing_key, found.mandatory, found.expires) == (
        "",
        "amq.rabbitmq.reply-to.abc",
        False,
        False,
    )


async def test_a_message_arrives_with_its_depth_and_its_life(desk: Desk) -> None:
    await desk.publisher.publish(desk.message(ttl=60, deadline_ms=5000), depth=3)
    (delivery,) = await desk.inbox()
    assert delivery.properties.headers["aa-depth"] == 3
    # The envelope is written by the machine's clock a moment before it is sent.
    assert 4000 < delivery.properties.expiration_ms <= 5001
    assert desk.counted("agent.direct", "confirmed") == 1
    (entry,) = desk.journal.entries
    assert (entry.what, entry.by, entry.note) == ("sent", "s", "agent.direct a")


async def test_the_first_of_a_chain_has_no_depth(desk: Desk) -> None:
    await desk.publisher.publish(desk.message())
    (delivery,) = await desk.inbox()
    assert "aa-depth" not in delivery.properties.headers


async def test_events_carry_no_expiration_and_need_no_listener(desk: Desk) -> None:
    event = {"message_type": "event", "recipient": None}
    await desk.publisher.publish(desk.message(intent="x.y", **event))
    await desk.publisher.publish(desk.message(intent="nobody.listens", **event))
    (delivery,) = await desk.inbox()
    assert delivery.properties.expiration_ms is None


async def test_an_agent_without_a_queue_is_known_at_once_with_the_mend(desk: Desk) -> None:
    with pytest.raises(
        UnroutableMessageError, match="agent 'b' has no queue on this broker; start"
    ):
        await desk.publisher.publish(desk.message(recipient="b"))
    assert desk.counted("agent.direct", "UnroutableMessageError") == 1
    assert [(entry.what, entry.by) for entry in desk.journal.entries] == [("unroutable", "s")]


async def test_a_vhost_without_a_topology_is_told_as_such() -> None:
    with pytest.raises(UnroutableMessageError, match=r"exchange not found: agent\.direct"):
        await Desk().publisher.publish(Desk().message())


async def test_a_message_that_has_no_life_left_is_not_sent(desk: Desk) -> None:
    message = desk.message(ttl=1)
    aged = message.model_copy(update={"timestamp": message.timestamp.replace(year=2020)})
    with pytest.raises(ExpiredMessageError):
        await desk.publisher.publish(aged)


async def test_what_was_written_before_the_clock_was_moved_is_as_young_as_after(desk: Desk) -> None:
    await desk.clock.advance(3600)
    fresh = AgentMessage(sender="s", recipient="a", type="message", ttl=60)
    await desk.publisher.publish(fresh)
    (delivery,) = await desk.inbox()
    arrived = decode(delivery.body, delivery.properties)
    assert arrived.timestamp.timestamp() == pytest.approx(desk.clock.time(), abs=1)


async def test_a_body_over_the_limit_is_refused_before_it_is_sent() -> None:
    desk = Desk(max_body_bytes=1024)
    with pytest.raises(InvalidPayloadError, match=r"max_body_bytes"):
        await desk.publisher.publish(desk.message(payload={"text": "x" * 2000}))


@pytest.mark.parametrize("failing", ["reject", "lose"])
async def test_what_may_succeed_later_is_tried_again_with_the_same_key(
    desk: Desk, failing: str
) -> None:
    getattr(desk.broker.faults, failing)(3)
    await desk.during(5, desk.publisher.publish(desk.message()))
    keys = {d.properties.headers["aa-idempotency-key"] for d in await desk.inbox()}
    assert len(keys) == 1
    assert desk.counted("agent.direct", "confirmed") == 1


async def test_the_pause_between_tries_grows_to_a_second_and_stays(desk: Desk) -> None:
    desk.broker.faults.reject(10**6)
    task = asyncio.ensure_future(desk.publisher.publish(desk.message(), timeout_seconds=100))
    await desk.clock.advance(10)
    after_ten = desk.counted("agent.direct", "PublishRejectedError")
    await desk.clock.advance(10)
    after_twenty = desk.counted("agent.direct", "PublishRejectedError")
    assert 10 <= after_twenty - after_ten <= 21
    task.cancel()


class Leaping(ManualClock):
    """A clock on which whoever waits moves time himself."""

    async def sleep(self, seconds: float) -> None:
        self._offset += seconds


async def test_a_broker_that_refuses_a_thousand_times_is_still_only_a_refusal() -> None:
    desk = Desk(Leaping(frozen=True))
    desk.broker.faults.reject(10**6)
    with pytest.raises(PublishRejectedError):
        await desk.publisher.publish(desk.message(ttl=None), timeout_seconds=900)


class SetBack(Leaping):
    """A clock whose wall time is set back by an hour while somebody waits."""

    waited = False

    def time(self) -> float:
        return super().time() - 3600 * self.waited

    async def sleep(self, seconds: float) -> None:
        self.waited = True
        await super().sleep(seconds)


async def test_a_clock_set_back_does_not_prolong_the_limit() -> None:
    desk = Desk(SetBack(frozen=True))
    desk.broker.faults.reject(10**6)
    began = desk.clock.monotonic()
    with pytest.raises(PublishRejectedError):
        await desk.publisher.publish(desk.message(ttl=None), timeout_seconds=9)
    assert 7 < desk.clock.monotonic() - began <= 9


async def test_at_the_limit_the_caller_learns_whether_it_may_have_arrived(desk: Desk) -> None:
    desk.broker.faults.lose(1)
    desk.broker.faults.reject(10**6)
    with pytest.raises(OutcomeUnknownError):
        await desk.during(5, desk.publisher.publish(desk.message(), timeout_seconds=3))
    with pytest.raises(PublishRejectedError):
        await desk.during(5, desk.publisher.publish(desk.message(), timeout_seconds=3))


async def test_without_a_connection_nothing_was_sent_and_the_limit_holds(desk: Desk) -> None:
    desk.broker.faults.disconnect()
    started = desk.clock.time()
    with pytest.raises(BrokerConnectionError):
        await desk.during(3.01, desk.publisher.publish(desk.message(), timeout_seconds=3))
    assert desk.clock.time() - started < 3.1


async def test_a_connection_that_comes_back_in_time_is_used(desk: Desk) -> None:
    desk.broker.faults.disconnect()
    desk.clock.call_later(2, desk.broker.faults.reconnect)
    await desk.during(3, desk.publisher.publish(desk.message(), timeout_seconds=5))
    assert len(await desk.inbox()) == 1


async def test_a_value_amqp_cannot_carry_is_no_reason_to_try_again(desk: Desk) -> None:
    with pytest.raises(InvalidPayloadError, match="the headers have"):
        await desk.publisher.publish(desk.message(intent="i" * 70_000))


async def test_a_publish_can_go_another_way_than_the_brokers_own(desk: Desk) -> None:
    went: list[Publishing] = []

    class Way:
        async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
            went.append(publishing)

    await desk.publisher.publish(desk.message(), via=Way())
    assert [(p.exchange, p.routing_key) for p in went] == [("agent.direct", "a")]
    assert await desk.inbox() == []


async def test_an_answer_to_a_caller_that_left_comes_back(desk: Desk) -> None:
    answer = desk.message(message_type=MessageType.RESPONSE)
    with pytest.raises(UnroutableMessageError):
        await desk.publisher.reply(answer, to="agent.reply.gone", timeout_seconds=1)


@pytest.mark.parametrize("kind", ["request", "direct", "response", "error"])
def test_an_addressed_message_without_a_recipient_is_refused_and_never_spread(kind: str) -> None:
    with pytest.raises(InvalidPayloadError, match="needs a recipient"):
        destination_of(AgentMessage(sender="a", message_type=kind))
