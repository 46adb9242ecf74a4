"""Publishing: four answers, and one bad message among good ones."""

import asyncio
import time
from urllib.parse import urlsplit

import pytest

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.brokers.rabbitmq.channels import CHANNELS
from amqp_agents.errors import (
    BrokerConnectionError,
    InvalidPayloadError,
    OutcomeUnknownError,
    PublishRejectedError,
    UnroutableMessageError,
)
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.model import Binding, Exchange, ExchangeKind, Queue, QueueKind, Topology
from tests.conformance.waiting import Arrivals, send
from tests.integration.rabbitmq.conftest import WORK, Configure
from tests.nodes.endpoint import Endpoint
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq


def message(exchange: str, key: str, text: str = "x", **properties: object) -> Publishing:
    return Publishing(exchange, key, text.encode(), Properties(**properties))  # type: ignore[arg-type]


async def contents(broker: RabbitMQBroker, queue: str) -> list[str]:
    browser = await broker.browse(queue)
    found = []
    while (lease := await browser.get()) is not None:
        found.append(lease.delivery.body.decode())
    await browser.close()
    return found


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (message("nope", "work"), UnroutableMessageError, "exchange not found: nope; run"),
        (message("work", "nobody"), UnroutableMessageError, "no queue takes the message"),
        (
            message("work", "k" * 256),
            InvalidPayloadError,
            "routing_key has 256 bytes, the limit is 255",
        ),
        (message("work", "work", headers={"n": 2**63}), InvalidPayloadError, "header 'n'"),
        (message("work", "work", headers={"f": float("nan")}), InvalidPayloadError, "header 'f'"),
        (message("work", "work", priority=256), InvalidPayloadError, "priority"),
        (message("work", "work", expiration_ms=-1), InvalidPayloadError, "expiration_ms"),
        (message("work", "work", "x" * 17_000_000), InvalidPayloadError, "max_body_bytes"),
    ],
)
async def test_a_bad_message_is_named_and_fails_none_of_its_neighbours(
    broker: RabbitMQBroker, bad: Publishing, error: type[Exception], words: str
) -> None:
    good = [message("work", "work", str(number)) for number in range(10)]
    publishings = [*good[:5], bad, *good[5:]]
    answers = await asyncio.gather(
        *(broker.publish(each, timeout_seconds=10) for each in publishings), return_exceptions=True
    )
    refused = answers.pop(5)
    assert isinstance(refused, error)
    assert words in str(refused)
    assert answers == [None] * 10
    assert sorted(await contents(broker, "work")) == [str(number) for number in range(10)]


async def test_an_exchange_deleted_later_is_named_and_nothing_is_stored_twice(
    broker: RabbitMQBroker, rabbitmq: Endpoint, vhost_url: str
) -> None:
    doomed = Topology(
        exchanges=(Exchange("doomed", ExchangeKind.FANOUT),),
        bindings=(Binding("doomed", "work"),),
        queues=WORK.queues,
    )
    await broker.apply(doomed)
    await broker.publish(message("doomed", "", "before"), timeout_seconds=10)
    vhost = urlsplit(vhost_url).path[1:]
    await asyncio.to_thread(rabbitmq.management.call, "DELETE", f"exchanges/{vhost}/doomed")
    good = [message("work", "work", str(number)) for number in range(40)]
    answers = await asyncio.gather(
        *(broker.publish(each, timeout_seconds=10) for each in good[:20]),
        broker.publish(message("doomed", "", "after"), timeout_seconds=10),
        *(broker.publish(each, timeout_seconds=10) for each in good[20:]),
        return_exceptions=True,
    )
    with pytest.raises(UnroutableMessageError, match="exchange not found: doomed"):
        raise answers.pop(20)  # type: ignore[misc]
    assert {type(answer) for answer in answers} <= {type(None), OutcomeUnknownError}
    stored = await contents(broker, "work")
    confirmed = {str(n) for n, answer in enumerate(answers) if answer is None}
    assert len(stored) == len(set(stored))
    assert confirmed | {"before"} <= set(stored)
    await broker.publish(message("work", "work"), timeout_seconds=10)


async def test_a_missing_exchange_may_be_declared_later(broker: RabbitMQBroker) -> None:
    late = message("late", "work")
    for _ in range(2):
        with pytest.raises(UnroutableMessageError, match="exchange not found: late"):
            await broker.publish(late, timeout_seconds=10)
    exchange = Exchange("late", ExchangeKind.DIRECT)
    binding = Binding("late", "work", "work")
    await broker.apply(Topology(exchanges=(exchange,), queues=WORK.queues, bindings=(binding,)))
    await broker.publish(late, timeout_seconds=10)


async def test_a_key_the_user_may_not_write_to_is_refused_for_good(
    broker: RabbitMQBroker, rabbitmq: Endpoint, vhost_url: str, configured: Configure
) -> None:
    call, vhost = rabbitmq.management.call, urlsplit(vhost_url).path[1:]
    user = f"limited-{vhost}"
    topic = Topology(
        exchanges=(Exchange("topic", ExchangeKind.TOPIC),),
        queues=WORK.queues,
        bindings=(Binding("topic", "work", "#"),),
    )
    await broker.apply(topic)
    rights = {"configure": "^$", "write": "^topic$", "read": "^$"}
    await asyncio.to_thread(call, "PUT", f"users/{user}", {"password": "pw", "tags": ""})
    await asyncio.to_thread(call, "PUT", f"permissions/{vhost}/{user}", rights)
    await asyncio.to_thread(
        call,
        "PUT",
        f"topic-permissions/{vhost}/{user}",
        {"exchange": "topic", "write": "^mine$", "read": "^$"},
    )
    host = urlsplit(vhost_url)
    url = f"amqp://{user}:pw@{host.hostname}:{host.port}/{vhost}"
    limited = RabbitMQBroker(configured(url=url), name="limited")
    try:
        await limited.connect(timeout_seconds=10)
        await limited.publish(message("topic", "mine"), timeout_seconds=10)
        with pytest.raises(UnroutableMessageError, match=r"refuses the message.*topic 'yours'"):
            await limited.publish(message("topic", "yours"), timeout_seconds=10)
        with pytest.raises(UnroutableMessageError, match=r"refuses the message.*exchange 'work'"):
            await limited.publish(message("work", "work"), timeout_seconds=10)
        await limited.publish(message("topic", "mine"), timeout_seconds=10)
    finally:
        await limited.close()
        await asyncio.to_thread(call, "DELETE", f"users/{user}")


async def test_a_full_queue_is_a_rejection(broker: RabbitMQBroker) -> None:
    settings = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await broker.apply(Topology(queues=(Queue("full", QueueKind.CLASSIC, settings),)))
    await broker.publish(message("", "full"), timeout_seconds=10)
    with pytest.raises(PublishRejectedError, match="a queue is full"):
        await broker.publish(message("", "full"), timeout_seconds=10)


async def test_headers_about_another_messages_way_are_left_behind(broker: RabbitMQBroker) -> None:
    arrivals = Arrivals(broker)
    await broker.consume("work", arrivals, prefetch=1)
    headers = {
        "x-death": [{"queue": "work", "reason": "expired", "count": 1}],
        "x-first-death-queue": "work",
        "x-last-death-reason": "expired",
        "x-acquired-count": 3,
        "x-delivery-count": 99,
        "CC": ["elsewhere"],
        "BCC": ["elsewhere"],
        "kept": "yes",
    }
    await send(broker, "work", "work", "x", headers=headers)
    lease = await arrivals.next()
    told = dict(lease.delivery.properties.headers)
    told.pop("x-delivery-count", None)  # 3.10 shows its own, beginning with 0
    assert told == {"kept": "yes"}
    assert lease.delivery.delivery_count in (None, 0)


async def test_each_attempt_has_an_id_of_its_own_and_the_verified_user(
    broker: RabbitMQBroker,
) -> None:
    arrivals = Arrivals(broker)
    await broker.consume("work", arrivals, prefetch=2)
    for _ in range(2):
        await send(broker, "work", "work", "x", message_id="same", user_id="somebody")
    first, second = [lease.delivery.properties for lease in await arrivals.some(2)]
    assert len({first.message_id, second.message_id, "same"}) == 3
    assert {first.user_id, second.user_id} == {"guest"}


async def test_more_than_the_window_waits_and_says_so(
    proxy: Proxy, vhost_url: str, configured: Configure, broker: RabbitMQBroker
) -> None:
    settings = configured(url=proxy.url(vhost_url), publish_window=2)
    narrow = RabbitMQBroker(settings, name="narrow")
    await narrow.connect(timeout_seconds=10)
    for _ in range(CHANNELS):
        await narrow.publish(message("work", "work"), timeout_seconds=10)
    proxy.black_hole()
    began = time.monotonic()
    answers = await asyncio.gather(
        *(narrow.publish(message("work", "work"), timeout_seconds=1) for _ in range(3)),
        return_exceptions=True,
    )
    assert time.monotonic() - began < 2
    assert [type(answer) for answer in answers].count(OutcomeUnknownError) == 2
    (waited,) = [each for each in answers if isinstance(each, BrokerConnectionError)]
    assert "publish window is full" in str(waited)
    await narrow.close()
