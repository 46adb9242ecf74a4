"""A broker that is short of memory stops reading from those who publish."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.config import Settings
from amqp_agents.errors import BrokerConnectionError, OutcomeUnknownError
from amqp_agents.protocol.properties import Properties
from tests.conformance.waiting import Arrivals, send, until, until_depth
from tests.integration.rabbitmq.conftest import WORK
from tests.nodes.node import Node

pytestmark = [pytest.mark.rabbitmq, pytest.mark.node]

MESSAGE = Publishing("work", "work", b"x", Properties())


@pytest.fixture
def node(node_version: str) -> Iterator[Node]:
    with Node(node_version) as node:
        yield node


async def test_publishing_under_an_alarm_is_an_error_and_consuming_goes_on(node: Node) -> None:
    async def watermark(fraction: str) -> None:
        await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", fraction)

    settings = Settings(url=node.url, management_url=node.management_url)
    broker = RabbitMQBroker(settings, name="alarm")
    await broker.connect(timeout_seconds=20)
    await broker.apply(WORK)
    await asyncio.gather(*(send(broker, "work", "work", str(n)) for n in range(3)))
    await watermark("0.000001")

    async def refused_before_sending() -> bool:
        try:
            await broker.publish(MESSAGE, timeout_seconds=0.5)
        except OutcomeUnknownError:
            return False  # the broker says that it blocks at the first message only
        except BrokerConnectionError as error:
            return "takes no publishes now" in str(error)
        return False

    await until(refused_before_sending, "the refusal")
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="memory or disk alarm"):
        await broker.publish(MESSAGE, timeout_seconds=1)
    assert time.monotonic() - began < 1.1
    arrivals = Arrivals(broker)
    await (await broker.consume("work", arrivals, prefetch=3)).ready(10)
    assert sorted(await arrivals.bodies(3)) == ["0", "1", "2"]  # sent at once, in no order
    waiting = asyncio.create_task(broker.publish(MESSAGE, timeout_seconds=30))
    await watermark("0.6")
    await waiting
    await broker.close()


async def test_a_killed_node_loses_no_confirmed_message(node: Node) -> None:
    broker = RabbitMQBroker(Settings(url=node.url, management_url=node.management_url), name="kill")
    await broker.connect(timeout_seconds=20)
    await broker.apply(WORK)
    confirmed = 0
    await asyncio.sleep(3)  # a quorum queue younger than this may come back without a leader
    publishing = [
        asyncio.create_task(broker.publish(MESSAGE, timeout_seconds=60)) for _ in range(300)
    ]
    await asyncio.wait(publishing, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    answers = await asyncio.gather(*publishing, return_exceptions=True)
    confirmed = answers.count(None)
    assert confirmed > 0
    assert {type(each) for each in answers} <= {type(None), OutcomeUnknownError}
    await broker.publish(MESSAGE, timeout_seconds=30)
    depth = await broker.depth("work")
    assert depth is not None
    assert confirmed + 1 <= depth <= len(answers) + 1
    await until_depth(broker, "work", depth)
    await broker.close()
