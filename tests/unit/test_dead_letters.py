"""What dead letters say of themselves, and how they are sent back, on the memory broker."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from amqp_agents import parking
from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.config import Settings
from amqp_agents.dead_letters import (
    Replay,
    describe,
    found,
    listed,
    message_id_of,
)
from amqp_agents.errors import InvalidPayloadError, TopologyMissingError
from amqp_agents.observability import Telemetry
from amqp_agents.pipeline import ATTEMPT_HEADER, Delivery
from amqp_agents.protocol import CLOCK_HEADER
from amqp_agents.protocol.properties import Properties
from amqp_agents.publisher import AsyncPublisher
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import AgentSpec
from amqp_agents.topology.names import DIRECT, dead_letter_queue, inbox

AGENT = "quality_agent"
DIED = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def delivery(headers: dict[str, Any], body: bytes = b"{}", **properties: Any) -> Delivery:
    return Delivery(
        body,
        Properties(headers=headers, **properties),
        dead_letter_queue(AGENT),
        "agent.dlx",
        AGENT,
    )


def death(**told: Any) -> dict[str, Any]:
    return {
        "reason": "expired",
        "queue": inbox(AGENT),
        "exchange": "agent.events",
        "routing-keys": ["event.ticket.closed"],
        "time": DIED,
        "count": 1,
    } | told


def test_a_parked_copy_says_what_we_wrote_on_it() -> None:
    arrived = Delivery(
        b'{"x": 1}',
        Properties(headers={"aa-message-id": "M-1", "aa-intent": "review", ATTEMPT_HEADER: 3}),
        inbox(AGENT),
        "agent.direct",
        AGENT,
    )
    copy = parking.dead_letter(
        arrived, agent=AGENT, error=InvalidPayloadError("no text"), now=DIED.timestamp()
    )
    facts = describe(
        Delivery(copy.body, copy.properties, dead_letter_queue(AGENT), "agent.dlx", AGENT),
        agent=AGENT,
    )
    assert (facts.message_id, facts.code, facts.error) == (
        "M-1",
        "INVALID_PAYLOAD",
        "InvalidPayloadError",
    )
    assert (facts.message, facts.attempts, facts.at) == ("no text", 3, DIED)
    assert (facts.exchange, facts.routing_key, facts.intent) == ("agent.direct", AGENT, "review")
    assert facts.by_broker is False


def test_what_the_broker_gave_up_says_the_brokers_reason() -> None:
    facts = describe(delivery({"aa-message-id": "M-1", "x-death": [death()]}), agent=AGENT)
    assert (facts.code, facts.by_broker, facts.at) == ("expired", True, DIED)
    assert (facts.exchange, facts.routing_key) == ("agent.events", "event.ticket.closed")


def test_the_inboxs_own_death_counts_and_not_those_of_the_delay_levels() -> None:
    deaths = [
        death(queue="agent.delay.v1.0"),
        death(reason="delivery_limit", queue=inbox(AGENT)),
    ]
    facts = describe(delivery({"x-death": deaths, ATTEMPT_HEADER: 2}), agent=AGENT)
    assert (facts.code, facts.attempts) == ("delivery_limit", 2)
    assert "delivery limit" in facts.message


def test_deaths_elsewhere_do_not_hide_what_we_wrote() -> None:
    headers = {"x-death": [death(queue="other")], "aa-fault-code": "UNKNOWN"}
    facts = describe(delivery(headers), agent=AGENT)
    assert (facts.code, facts.by_broker) == ("UNKNOWN", False)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-death": "?"},
        {"x-death": ["?", 3, None]},
        {"x-death": [{}]},
        {"x-death": [death(reason=3, queue=None, time="yesterday", **{"routing-keys": []})]},
        {"aa-fault-code": 3, "aa-fault-message": b"\xff", "aa-fault-at": "?", ATTEMPT_HEADER: "x"},
        {"aa-message-id": 3, "aa-sender": [], "aa-orig-exchange": True},
    ],
)
def test_a_strange_dead_letter_is_described_all_the_same(headers: dict[str, Any]) -> None:
    facts = describe(delivery(headers, body=b"\xff\x00"), agent=AGENT)
    assert facts.code
    assert facts.message
    assert facts.message_id.startswith("body-")


def test_an_id_is_found_wherever_it_is() -> None:
    assert message_id_of(delivery({"aa-message-id": "a"}, message_id="b")) == "a"
    assert message_id_of(delivery({}, b'{"message_id": "c"}', message_id="b")) == "c"
    assert message_id_of(delivery({"aa-orig-message-id": "d"}, b"[]", message_id="b")) == "d"
    assert message_id_of(delivery({}, b"[]", message_id="b")) == "b"


@pytest.fixture
async def broker() -> AsyncIterator[MemoryBroker]:
    """A broker with three dead letters of the agent: M-0, M-1, M-2."""
    broker = MemoryBroker()
    await broker.apply(standard_topology([AgentSpec(AGENT), AgentSpec("other_agent")]))
    for number in range(3):
        await dead(broker, f"M-{number}")
    yield broker
    await broker.close()


async def dead(broker: MemoryBroker, message_id: str) -> None:
    headers = {"aa-message-id": message_id, ATTEMPT_HEADER: 5, "aa-fault-code": "UNKNOWN"}
    publishing = Publishing("agent.dlx", AGENT, b"{}", Properties(headers=headers))
    await broker.publish(publishing, timeout_seconds=1)


def replay(broker: MemoryBroker, **options: Any) -> Replay:
    publisher = AsyncPublisher(broker, settings=Settings(), telemetry=Telemetry())
    return Replay(broker, publisher, AGENT, per_second=10_000, **options)


async def ids(broker: MemoryBroker) -> list[str]:
    return [facts.message_id for facts in await listed(broker, AGENT, limit=100)]


async def test_looking_takes_nothing_away(broker: MemoryBroker) -> None:
    for _ in range(5):
        assert await ids(broker) == ["M-0", "M-1", "M-2"]
    assert await broker.depth(dead_letter_queue(AGENT)) == 3


async def test_a_limit_ends_the_look(broker: MemoryBroker) -> None:
    facts = await listed(broker, AGENT, limit=2)
    assert [each.message_id for each in facts] == ["M-0", "M-1"]


async def test_one_is_found_and_stays(broker: MemoryBroker) -> None:
    delivery = await found(broker, AGENT, "M-1")
    assert delivery is not None
    assert await found(broker, AGENT, "M-9") is None
    assert await ids(broker) == ["M-0", "M-1", "M-2"]


async def test_replaying_one_removes_that_one_only(broker: MemoryBroker) -> None:
    facts = await replay(broker).one("M-1")
    assert facts is not None
    assert await ids(broker) == ["M-0", "M-2"]
    assert await broker.depth(inbox(AGENT)) == 1
    assert await broker.depth(inbox("other_agent")) == 0
    assert await replay(broker).one("M-1") is None


async def test_a_replayed_message_starts_anew_under_its_own_id(broker: MemoryBroker) -> None:
    await replay(broker).one("M-1")
    browser = await broker.browse(inbox(AGENT))
    lease = await browser.get()
    assert lease is not None
    headers = lease.delivery.properties.headers
    assert headers["aa-message-id"] == "M-1"
    assert parking.RETRY_ID_HEADER in headers
    assert CLOCK_HEADER in headers
    assert ATTEMPT_HEADER not in headers
    assert "aa-fault-code" not in headers
    assert lease.delivery.exchange == DIRECT
    await browser.close()


async def test_replaying_all_stops_at_what_there_was(broker: MemoryBroker) -> None:
    told: list[str] = []
    count = await replay(broker, on_replayed=lambda facts: told.append(facts.message_id)).all(2)
    assert (count, told) == (2, ["M-0", "M-1"])
    assert await ids(broker) == ["M-2"]


async def test_what_fails_again_meanwhile_is_not_replayed_again(broker: MemoryBroker) -> None:
    replaying = replay(broker)
    assert await replaying.all(1) == 1
    inboxes = await broker.browse(inbox(AGENT))
    lease = await inboxes.get()
    assert lease is not None
    again = parking.dead_letter(
        lease.delivery, agent=AGENT, error=ValueError("again"), now=broker.clock.time()
    )
    await broker.publish(again, timeout_seconds=1)
    await lease.ack()
    await inboxes.close()

    assert await replaying.all(100) == 3
    assert await ids(broker) == ["M-0"]


async def test_without_an_inbox_nothing_is_removed() -> None:
    broker = MemoryBroker()
    await broker.apply(standard_topology([AgentSpec(AGENT)]))
    await dead(broker, "M-0")
    broker.vhost.delete_queue(inbox(AGENT))
    with pytest.raises(TopologyMissingError, match=f"queue {inbox(AGENT)}"):
        await replay(broker).one("M-0")
    assert await ids(broker) == ["M-0"]
    await broker.close()
