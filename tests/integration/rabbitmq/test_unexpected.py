"""Errors of the library that nobody expects: told, and never the end of a loop."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aio_pika
import pytest
from aiormq import exceptions as library
from aiormq.channel import Channel

from amqp_agents.brokers.base import Publishing, SubscriptionState
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.brokers.rabbitmq.session import Session
from amqp_agents.errors import PublishRejectedError
from amqp_agents.protocol.properties import Properties
from tests.conformance.waiting import Arrivals, body, send, until
from tests.integration.rabbitmq.conftest import Configure
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq

ERRORS = [
    ValueError("a frame nobody can read"),
    AttributeError("'NoneType' object has no attribute 'drain'"),
    KeyError(7),
    RuntimeError("a mistake"),
    library.MethodNotImplemented(),
    asyncio.InvalidStateError("invalid state"),
]

Inject = Callable[..., None]


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Inject:
    """Make calls of a method fail, as many as there are errors; then it works again."""

    def change(owner: type, name: str, *errors: Exception, afterwards: bool = False) -> None:
        left, real = list(errors), getattr(owner, name)

        async def failing(self: object, *args: Any, **options: Any) -> Any:
            if not left:
                return await real(self, *args, **options)
            error = left.pop(0)
            if afterwards:
                await real(self, *args, **options)
            raise error

        monkeypatch.setattr(owner, name, failing)

    return change


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("afterwards", [False, True])
async def test_the_queue_is_consumed_again_and_the_reason_is_told(
    broker: RabbitMQBroker,
    inject: Inject,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    *,
    afterwards: bool,
) -> None:
    inject(Channel, "basic_consume", error, afterwards=afterwards)
    arrivals, failures = Arrivals(broker), []
    subscription = await broker.consume("work", arrivals, prefetch=1)

    async def failing() -> bool:
        failures.append(subscription.failure)
        return subscription.state is SubscriptionState.FAILING

    await until(failing, "the subscription to say that it fails")
    assert f"queue 'work' is not consumed: {type(error).__name__}" in str(failures[-1])
    await subscription.ready(10)
    assert (subscription.state, subscription.failure) == (SubscriptionState.UP, None)
    for number in range(3):
        await send(broker, "work", "work", str(number))
    for number in range(3):  # one by one: nothing waits in the channel that failed
        lease = await arrivals.next()
        assert body(lease) == str(number)
        assert await lease.ack()
    (record,) = [each for each in caplog.records if "consumer_failing" in each.getMessage()]
    assert record.exc_info
    assert "task_died" not in caplog.text


async def test_while_connecting_it_is_one_failed_attempt(
    configured: Configure, inject: Inject, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    inject(aio_pika.Connection, "connect", ValueError("amqp://guest:hush@rabbit"), TypeError())
    broker = RabbitMQBroker(configured(), name="test")
    await broker.connect(timeout_seconds=10)
    await broker.close()
    failed = [line for line in caplog.messages if line.startswith("connect_failed")]
    assert len(failed) == 2
    assert "the client failed with ValueError" in "".join(failed)
    assert "hush" not in "".join(failed)
    assert "task_died" not in caplog.text


@pytest.mark.parametrize(
    ("owner", "error"),
    [(aio_pika.Connection, AttributeError("drain")), (Session, RuntimeError("a mistake"))],
)
async def test_at_the_end_of_a_connection_it_does_not_end_the_link(
    proxied: RabbitMQBroker,
    proxy: Proxy,
    inject: Inject,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    error: Exception,
) -> None:
    inject(owner, "close", error, error)  # of both links
    arrivals = Arrivals(proxied)
    subscription = await proxied.consume("work", arrivals, prefetch=1)
    await subscription.ready(10)
    proxy.reset()
    await send(proxied, "work", "work", "after")
    lease = await arrivals.next()
    assert body(lease) == "after"
    await lease.ack()
    assert "connection_lost" in caplog.text
    assert "task_died" not in caplog.text


async def test_a_channel_closed_before_a_message_was_sent_refuses_that_message_only(
    broker: RabbitMQBroker, inject: Inject
) -> None:
    inject(Channel, "exchange_declare", library.ChannelPreconditionFailed("PRECONDITION_FAILED"))
    work = Publishing("work", "work", b"x", Properties())
    with pytest.raises(PublishRejectedError, match=r"not sent.*'work'.*PRECONDITION_FAILED"):
        await broker.publish(work, timeout_seconds=10)
    await broker.publish(work, timeout_seconds=10)
    assert await broker.depth("work") == 1
