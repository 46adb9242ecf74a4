"""Where answers arrive, and looking into queues."""

import asyncio

import pytest

from amqp_agents.brokers.base import Broker, Publishing
from amqp_agents.errors import TopologyMissingError, UnroutableMessageError
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import AgentSpec, Binding, Exchange, ExchangeKind, Queue, Topology
from tests.conformance.lab import Lab
from tests.conformance.waiting import LIMIT_SECONDS, Arrivals, body, send, until_depth

AGENTS = Topology(
    exchanges=(
        Exchange("agent.direct", ExchangeKind.DIRECT),
        Exchange("agent.reply", ExchangeKind.TOPIC),
        Exchange("agent.control", ExchangeKind.TOPIC),
    ),
    queues=(Queue("agent.a"),),
    bindings=(Binding("agent.direct", "agent.a", "a"),),
)


def request(reply_to: str) -> Publishing:
    return Publishing("agent.direct", "a", b"question", Properties(reply_to=reply_to))


async def test_an_answer_reaches_the_reply_queue_of_the_instance(lab: Lab, broker: Broker) -> None:
    await broker.apply(AGENTS)
    requests, answers = Arrivals(broker), Arrivals(broker)
    await broker.consume("agent.a", requests, prefetch=1)
    client = await lab.connect()
    replies = await client.open_replies("one", answers)
    assert replies.address == "agent.reply.one"
    await replies.publish(request(replies.address), timeout_seconds=LIMIT_SECONDS)
    asked = await requests.next()
    assert asked.delivery.properties.reply_to == "agent.reply.one"
    await send(broker, "agent.reply", "one", "answer", correlation_id="c-1")
    answer = await answers.next()
    assert (body(answer), answer.delivery.properties.correlation_id) == ("answer", "c-1")
    assert await answer.ack()


async def test_each_instance_has_its_own_answers(lab: Lab, broker: Broker) -> None:
    await broker.apply(AGENTS)
    other = await lab.connect()
    first, second = Arrivals(broker), Arrivals(other)
    await broker.open_replies("first", first)
    await other.open_replies("second", second)
    for number in range(10):
        await send(broker, "agent.reply", "first" if number % 2 else "second", str(number))
    assert await first.bodies(5) == ["1", "3", "5", "7", "9"]
    assert await second.bodies(5) == ["0", "2", "4", "6", "8"]


async def test_an_answer_to_nobody_comes_back(broker: Broker) -> None:
    await broker.apply(AGENTS)
    with pytest.raises(UnroutableMessageError):
        await send(broker, "agent.reply", "gone", "answer")


async def test_an_answer_waits_for_an_instance_that_lost_its_connection(
    lab: Lab, broker: Broker
) -> None:
    await broker.apply(AGENTS)
    async with lab.breakable() as (client, way):
        answers = Arrivals(client)
        await client.open_replies("one", answers)
        way.lose()
        await send(broker, "agent.reply", "one", "late answer")
        way.restore()
        assert await answers.bodies(1) == ["late answer"]


async def test_closed_replies_take_no_more_answers_but_keep_the_queue(broker: Broker) -> None:
    await broker.apply(AGENTS)
    answers = Arrivals(broker)
    replies = await broker.open_replies("one", answers)
    await replies.close()
    await replies.close()
    await send(broker, "agent.reply", "one", "too late")
    await until_depth(broker, "agent.reply.one", 1)
    assert answers.waiting == 0


async def test_replies_without_their_exchange_name_what_is_missing(broker: Broker) -> None:
    with pytest.raises(TopologyMissingError, match=r"exchange agent\.reply"):
        await broker.open_replies("one", Arrivals(broker))


async def test_a_direct_answer_needs_no_queue(lab: Lab, broker: Broker) -> None:
    await broker.apply(AGENTS)
    requests, answers = Arrivals(broker), Arrivals(broker)
    await broker.consume("agent.a", requests, prefetch=5)
    client = await lab.connect()
    replies = await client.open_replies("one", answers, direct=True)
    for _ in range(2):
        await replies.publish(request(replies.address), timeout_seconds=LIMIT_SECONDS)
        address = (await requests.next()).delivery.properties.reply_to
        assert address is not None
        assert address.startswith("amq.rabbitmq.reply-to.")
        await send(broker, "", address, "answer", mandatory=False)
        answer = await answers.next()
        assert body(answer) == "answer"
        assert await answer.ack()
    await client.close()
    await send(broker, "", str(address), "to nobody", mandatory=False)


async def test_a_direct_request_to_an_unknown_agent_comes_back(broker: Broker) -> None:
    await broker.apply(AGENTS)
    replies = await broker.open_replies("one", Arrivals(broker), direct=True)
    unknown = Publishing("agent.direct", "nobody", b"?", Properties(reply_to=replies.address))
    with pytest.raises(UnroutableMessageError):
        await replies.publish(unknown, timeout_seconds=LIMIT_SECONDS)
    await replies.publish(request(replies.address), timeout_seconds=LIMIT_SECONDS)


async def test_direct_replies_go_on_after_a_lost_connection(lab: Lab, broker: Broker) -> None:
    await broker.apply(AGENTS)
    requests = Arrivals(broker)
    await broker.consume("agent.a", requests, prefetch=5)
    async with lab.breakable() as (client, way):
        answers = Arrivals(client)
        replies = await client.open_replies("one", answers, direct=True)
        way.lose()
        waiting = asyncio.ensure_future(
            replies.publish(request(replies.address), timeout_seconds=LIMIT_SECONDS)
        )
        way.restore()
        await waiting
        address = (await requests.next()).delivery.properties.reply_to
        await send(broker, "", str(address), "answer", mandatory=False)
        assert body(await answers.next()) == "answer"


async def test_looking_fifty_times_loses_nothing(broker: Broker) -> None:
    await broker.apply(standard_topology([AgentSpec("a")]))
    for text in "abc":
        await send(broker, "agent.dlx", "a", text, headers={"aa-fault-code": "UNKNOWN"})
    for _ in range(50):
        browser = await broker.browse("agent.a.dlq")
        seen = [lease for _ in range(3) if (lease := await browser.get()) is not None]
        assert [body(lease) for lease in seen] == ["a", "b", "c"]
        assert await browser.get() is None
        await browser.close()
        await until_depth(broker, "agent.a.dlq", 3)


async def test_a_browser_can_take_out_single_messages(broker: Broker) -> None:
    await broker.apply(standard_topology([AgentSpec("a")]))
    for text in "abc":
        await send(broker, "agent.dlx", "a", text)
    browser = await broker.browse("agent.a.dlq")
    leases = [lease for _ in range(3) if (lease := await browser.get()) is not None]
    assert await leases[1].ack()
    await browser.close()
    await browser.close()
    await until_depth(broker, "agent.a.dlq", 2)
    browser = await broker.browse("agent.a.dlq")
    rest = [lease for _ in range(2) if (lease := await browser.get()) is not None]
    assert [body(lease) for lease in rest] == ["a", "c"]
    assert all(lease.delivery.redelivered for lease in rest)
    await browser.close()


async def test_a_queue_that_does_not_exist_has_no_depth_and_shows_nothing(broker: Broker) -> None:
    assert await broker.depth("nope") is None
    browser = await broker.browse("nope")
    with pytest.raises(TopologyMissingError, match="queue nope"):
        await browser.get()
    await browser.close()
