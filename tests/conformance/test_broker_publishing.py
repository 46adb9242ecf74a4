"""Four answers to a publish, what arrives of a message, and what is refused before it is sent."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from amqp_agents.brokers.base import Broker, Publishing
from amqp_agents.errors import (
    BrokerConnectionError,
    BrokerError,
    InvalidPayloadError,
    OutcomeUnknownError,
    PublishRejectedError,
    UnroutableMessageError,
)
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.model import Binding, Exchange, ExchangeKind, Queue, QueueKind, Topology
from tests.conformance.lab import Lab
from tests.conformance.waiting import LIMIT_SECONDS, Arrivals, body, send, until, until_depth

DOOR = Exchange("door", ExchangeKind.DIRECT)
PLAIN = Topology(exchanges=(DOOR,), queues=(Queue("q"),), bindings=(Binding("door", "q", "k"),))


def limited(kind: QueueKind, **settings: Any) -> Topology:
    """The queue `q` behind `door`, with settings."""
    arguments = {f"x-{name.replace('_', '-')}": value for name, value in settings.items()}
    return Topology(
        exchanges=(DOOR,), queues=(Queue("q", kind, arguments),), bindings=PLAIN.bindings
    )


async def answer(broker: Broker, *, timeout_seconds: float = 5.0) -> BrokerError | None:
    """What the broker says to one more message; None if it confirms."""
    try:
        await broker.publish(
            Publishing("door", "k", b"one more", Properties()), timeout_seconds=timeout_seconds
        )
    except BrokerError as error:
        return error
    return None


async def send_until_rejected(broker: Broker) -> int:
    """How many messages the queue took before it rejected one."""
    for taken in range(20):
        if isinstance(await answer(broker), PublishRejectedError):
            return taken
    raise AssertionError("twenty messages were taken")


async def test_a_confirmed_message_is_in_its_queue(broker: Broker) -> None:
    await broker.apply(PLAIN)
    for text in "abc":
        await send(broker, "door", "k", text)
    assert await broker.depth("q") == 3


async def test_publishes_at_the_same_time_each_get_their_own_answer(broker: Broker) -> None:
    await broker.apply(PLAIN)
    keys = ["k" if number % 3 else "nobody" for number in range(150)]
    answers = await asyncio.gather(
        *(send(broker, "door", key, key) for key in keys), return_exceptions=True
    )
    for key, answer in zip(keys, answers, strict=True):
        assert answer is None if key == "k" else isinstance(answer, UnroutableMessageError)
    await until_depth(broker, "q", 100)


@pytest.mark.parametrize("kind", [QueueKind.QUORUM, QueueKind.CLASSIC])
async def test_a_full_queue_that_rejects_says_so(broker: Broker, kind: QueueKind) -> None:
    await broker.apply(limited(kind, max_length=3, overflow="reject-publish"))
    taken = await send_until_rejected(broker)
    # A quorum queue notices at the message that was one too many, and tells publishers then.
    assert 3 <= taken <= (3 if kind is QueueKind.CLASSIC else 10)
    await until_depth(broker, "q", taken)


async def test_a_full_queue_takes_messages_again_once_there_is_room(broker: Broker) -> None:
    await broker.apply(limited(QueueKind.QUORUM, max_length=2, overflow="reject-publish"))
    await send_until_rejected(broker)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=100)
    assert (await arrivals.bodies(2)) == ["one more", "one more"]
    await until_depth(broker, "q", 0)

    async def taken() -> bool:  # the publisher's side hears of the room a moment later
        return await answer(broker) is None

    await until(taken, "the empty queue takes a message")


async def test_a_full_queue_that_drops_drops_the_oldest(broker: Broker) -> None:
    await broker.apply(limited(QueueKind.CLASSIC, max_length=2, overflow="drop-head"))
    for text in "abcd":
        await send(broker, "door", "k", text)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=10)
    assert await arrivals.bodies(2) == ["c", "d"]


async def test_a_mandatory_message_without_a_queue_comes_back(broker: Broker) -> None:
    await broker.apply(PLAIN)
    with pytest.raises(UnroutableMessageError, match="nobody"):
        await send(broker, "door", "nobody", "x")
    await send(broker, "door", "nobody", "x", mandatory=False)
    assert await broker.depth("q") == 0


async def test_a_missing_exchange_is_named_and_harms_no_other_message(broker: Broker) -> None:
    await broker.apply(PLAIN)
    good = [send(broker, "door", "k", str(number)) for number in range(20)]
    bad = [send(broker, "nope", "k", "x", mandatory=number % 2 == 0) for number in range(4)]
    answers = await asyncio.gather(*good, *bad, return_exceptions=True)
    assert answers[:20] == [None] * 20
    for answer in answers[20:]:
        assert isinstance(answer, UnroutableMessageError)
        assert "exchange not found: nope" in str(answer)


async def test_an_exchange_declared_later_is_found(broker: Broker) -> None:
    with pytest.raises(UnroutableMessageError):
        await send(broker, "door", "k", "early")
    await broker.apply(PLAIN)
    await send(broker, "door", "k", "late")


async def test_no_answer_in_time_leaves_the_outcome_unknown(lab: Lab, broker: Broker) -> None:
    await broker.apply(PLAIN)
    async with lab.breakable() as (client, way):
        for _ in range(8):  # whatever is opened at a first publish is open now
            await send(client, "door", "k", "confirmed")
        way.swallow()
        assert isinstance(await answer(client, timeout_seconds=0.5), OutcomeUnknownError)


async def test_without_a_connection_nothing_is_sent(lab: Lab, broker: Broker) -> None:
    await broker.apply(PLAIN)
    async with lab.breakable() as (client, way):
        await send(client, "door", "k", "confirmed")
        way.lose()
        first = await answer(client, timeout_seconds=0.3)
        # What goes into a socket before its loss is noticed may have been sent.
        assert isinstance(first, BrokerConnectionError | OutcomeUnknownError)
        assert isinstance(await answer(client, timeout_seconds=0.3), BrokerConnectionError)


async def test_a_publish_waits_for_the_connection_to_come_back(lab: Lab, broker: Broker) -> None:
    await broker.apply(PLAIN)
    async with lab.breakable() as (client, way):
        await send(client, "door", "k", "before")
        way.lose()
        await answer(client, timeout_seconds=0.2)
        waiting = asyncio.ensure_future(send(client, "door", "k", "after"))
        await asyncio.wait({waiting}, timeout=0.1)
        assert not waiting.done()
        way.restore()
        async with asyncio.timeout(LIMIT_SECONDS):
            await waiting


async def test_properties_arrive_as_they_were_sent(broker: Broker) -> None:
    await broker.apply(PLAIN)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    east = timezone(timedelta(hours=8))
    sent = Properties(
        content_type="application/json",
        content_encoding="identity",
        headers={
            "aa-text": "größer ✓",
            "aa-true": True,
            "aa-small": -1,
            "aa-large": 2**62,
            "aa-negative": -(2**63),
            "aa-time": datetime(2026, 5, 4, 3, 2, 1, 999_000, tzinfo=east),
            "aa-empty": "",
        },
        persistent=True,
        priority=7,
        correlation_id="c-1",
        reply_to="agent.reply.x",
        expiration_ms=600_000,
        timestamp=datetime(2026, 5, 4, 3, 2, 1, 500_000, tzinfo=UTC),
        type="task.request",
        app_id="support",
    )
    await broker.publish(Publishing("door", "k", b"\x00\xff", sent), timeout_seconds=5)
    delivery = (await arrivals.next()).delivery
    got = delivery.properties
    assert delivery.body == b"\x00\xff"
    assert (delivery.exchange, delivery.routing_key, delivery.queue) == ("door", "k", "q")
    headers = {name: value for name, value in got.headers.items() if name.startswith("aa-")}
    assert headers == dict(sent.headers) | {"aa-time": datetime(2026, 5, 3, 19, 2, 1, tzinfo=UTC)}
    assert {name: type(value) for name, value in headers.items()} == {
        name: type(value) for name, value in sent.headers.items()
    }
    assert got.timestamp == datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    names = "content_type content_encoding persistent priority correlation_id reply_to"
    names += " expiration_ms type app_id"
    assert {n: getattr(got, n) for n in names.split()} == {
        n: getattr(sent, n) for n in names.split()
    }
    assert got.user_id == "guest"


async def test_each_attempt_has_a_message_id_of_its_own(broker: Broker) -> None:
    await broker.apply(PLAIN)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=2)
    same = Publishing("door", "k", b"x", Properties())
    for _ in range(2):
        await broker.publish(same, timeout_seconds=5)
    first, second = await arrivals.some(2)
    ids = {first.delivery.properties.message_id, second.delivery.properties.message_id}
    assert len(ids - {None}) == 2


async def test_what_another_broker_wrote_is_not_sent_on(broker: Broker) -> None:
    await broker.apply(PLAIN)
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    forged = {
        "x-first-death-queue": "q",
        "x-last-death-reason": "expired",
        "x-delivery-count": 99,
        "x-acquired-count": 99,
        "CC": "other",
        "kept": 1,
    }
    await send(broker, "door", "k", "x", headers=forged)
    delivery = (await arrivals.next()).delivery
    assert "x-first-death-queue" not in delivery.properties.headers
    assert "x-last-death-reason" not in delivery.properties.headers
    assert "CC" not in delivery.properties.headers
    assert delivery.properties.headers["kept"] == 1
    assert delivery.delivery_count in (None, 0)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        (Properties(headers={"aa-score": float("nan")}), "aa-score"),
        (Properties(headers={"aa-number": 2**64}), "aa-number"),
        (Properties(headers={"aa-nested": {"a": 1}}), "aa-nested"),
        (Properties(correlation_id="x" * 256), "correlation_id"),
        (Properties(type="\ud800"), "type"),
        (Properties(priority=256), "priority"),
        (Properties(expiration_ms=-1), "expiration_ms"),
        (Properties(headers={f"aa-{n}": "x" * 1000 for n in range(100)}), "headers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_amqp_cannot_carry_is_refused_before_it_is_sent(
    broker: Broker, properties: Properties, named: str
) -> None:
    await broker.apply(PLAIN)
    with pytest.raises(InvalidPayloadError, match=named):
        await broker.publish(Publishing("door", "k", b"x", properties), timeout_seconds=5)
    await send(broker, "door", "k", "the channel is still good")


async def test_a_body_rabbitmq_would_close_the_channel_for_is_refused_before_it_is_sent(
    broker: Broker,
) -> None:
    await broker.apply(PLAIN)
    large = Publishing("door", "k", bytes(16_777_217), Properties())
    with pytest.raises(InvalidPayloadError, match="16777216"):
        await broker.publish(large, timeout_seconds=5)


async def test_a_body_over_our_own_limit_is_carried_for_it_may_be_a_copy(broker: Broker) -> None:
    await broker.apply(PLAIN)
    copy = Publishing("door", "k", bytes(2_000_000), Properties())
    await broker.publish(copy, timeout_seconds=5)


async def test_an_empty_body_and_an_empty_key_are_no_special_case(broker: Broker) -> None:
    await broker.apply(
        Topology(exchanges=(DOOR,), queues=(Queue("q"),), bindings=(Binding("door", "q", ""),))
    )
    arrivals = Arrivals(broker)
    await broker.consume("q", arrivals, prefetch=1)
    await send(broker, "door", "", "")
    lease = await arrivals.next()
    assert (body(lease), lease.delivery.routing_key) == ("", "")
    assert await lease.ack()


async def test_after_close_nothing_is_sent(lab: Lab) -> None:
    broker = await lab.connect()
    await broker.apply(PLAIN)
    await broker.close()
    await broker.close()
    with pytest.raises(BrokerConnectionError, match="closed"):
        await send(broker, "door", "k", "x")
