"""Dead letters: what ends there, with which reason, and how it comes back."""

import asyncio
import struct
import time
from collections import Counter
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from amqp_agents import (
    AgentApp,
    AgentCommunicationError,
    AgentMessage,
    Client,
    Outgoing,
    PermissionDeniedError,
    RetryPolicy,
    agent,
)
from amqp_agents.agent import Agent
from amqp_agents.brokers.base import Broker
from amqp_agents.dead_letters import Replay, browsing, listed
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol import encode
from amqp_agents.topology.names import DIRECT, dead_letter_queue, inbox
from tests.conformance.waiting import until_depth
from tests.nodes.rawpub import long, properties, publish_raw, short, table

pytestmark = pytest.mark.rabbitmq

BROWSINGS = 50
MAX_TEXT_BYTES = 2_000


class Note(BaseModel):
    text: str = ""


class Echo(BaseModel):
    text: str


class Mute(Exception):  # noqa: N818 - it says nothing
    def __str__(self) -> str:
        raise RuntimeError("even this fails")


FAULTS = {
    "long": ValueError("x" * 200_000),
    "wide": ValueError("€" * 70_000),
    "mute": Mute(),
}

UNDECODABLE = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "cut": b'{"message_id": "M-1", "sender": "a", "pay',
    "binary": bytes(range(256)),
    "spaces": b" " * 1_000_000,
    "no envelope": b'{"order": 4}',
    "other envelope": b'{"message_id": "M-1", "sender": "a", "type": "x", "payload": [1]}',
}

FOREIGN_HEADERS = table(
    (b"double", b"d" + struct.pack(">d", 0.5)),
    (b"float", b"f" + struct.pack(">f", 0.25)),
    (b"nested", b"F" + table((b"inner", b"S" + long(b"value")))),
    (b"bytes", b"x" + long(b"\xff\x00\xfe")),
    (b"array", b"A" + long(b"I" + struct.pack(">i", 7))),
    (b"nothing", b"V"),
    (b"decimal", b"D\x02" + struct.pack(">I", 314)),
    (b"latin", b"S" + long("café".encode("latin-1"))),
    (b"late", b"T" + struct.pack(">Q", 2**60)),
    (b"aa-attempt", b"S" + long(b"many")),
    (b"plain", b"S" + long(b"kept")),
)


@agent("reader", retry=RetryPolicy(max_attempts=1))
async def reader(note: Note) -> Echo:
    if note.text in FAULTS:
        raise FAULTS[note.text]
    if note.text == "refuse":
        raise PermissionDeniedError("not this one")
    return Echo(text=note.text)


async def sent_raw(url: str, body: bytes, property_bytes: bytes) -> None:
    """Send bytes to the agent `reader` as a foreign program would."""
    await publish_raw(url, b"reader", body, property_bytes, exchange=DIRECT.encode())


async def resting(broker: Broker, agent_name: str, count: int) -> list[Delivery]:
    """The dead letters of the agent, once there are so many."""
    await until_depth(broker, dead_letter_queue(agent_name), count)
    found = []
    async with browsing(broker, agent_name) as browser:
        while (lease := await browser.get()) is not None:
            found.append(lease.delivery)
    assert len(found) == count
    return found


def outcomes(client: Client, agent_name: str) -> dict[str, float]:
    """How often each outcome was counted for the agent."""
    samples = next(iter(client.telemetry.metrics.deliveries.collect())).samples
    return {
        sample.labels["outcome"]: sample.value
        for sample in samples
        if sample.name.endswith("_total") and sample.labels["agent"] == agent_name
    }


async def test_looking_fifty_times_loses_nothing(app_url: str) -> None:
    async with AgentApp([reader]).test(app_url) as client:
        broker = client.broker
        for _ in range(3):
            await client.publish(Outgoing(Note(text="refuse"), to="reader"))
        first = await resting(broker, "reader", 3)
        ids = Counter(str(delivery.properties.headers["aa-message-id"]) for delivery in first)
        assert len(ids) == 3
        for _ in range(BROWSINGS):
            await until_depth(broker, dead_letter_queue("reader"), 3)
            seen = await listed(broker, "reader", limit=10)
            assert Counter(letter.message_id for letter in seen) == ids
            assert {letter.code for letter in seen} == {"PERMISSION_DENIED"}
        last = await resting(broker, "reader", 3)
        assert sorted(each.body for each in last) == sorted(each.body for each in first)
        assert await broker.depth(inbox("reader")) == 0


async def test_a_dead_letter_older_than_its_ttl_is_replayed_to_its_agent_only(
    app_url: str,
) -> None:
    handled: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    refusing = True

    def listener(name: str) -> Agent:
        listener = Agent(name)

        @listener.on_event("ticket.closed")
        async def on_closed(note: Note) -> None:
            if refusing:
                raise PermissionDeniedError("not now")
            handled.put_nowait((name, note.text))

        return listener

    async with AgentApp([listener("first"), listener("second")]).test(app_url) as client:
        broker = client.broker
        await client.publish(Outgoing(Note(text="old"), event="ticket.closed", ttl=2))
        expires = time.monotonic() + 2
        (letter,) = await resting(broker, "first", 1)
        await resting(broker, "second", 1)
        refusing = False
        await asyncio.sleep(expires - time.monotonic())

        replay = Replay(broker, client.publisher, "first")
        assert await replay.all(10) == 1
        assert await asyncio.wait_for(handled.get(), 5) == ("first", "old")
        # What comes after it has reached both, so the replayed one reached nobody else.
        await client.publish(Outgoing(Note(text="new"), event="ticket.closed"))
        both = [await asyncio.wait_for(handled.get(), 5) for _ in range(2)]
        assert sorted(both) == [("first", "new"), ("second", "new")]
        await until_depth(broker, dead_letter_queue("first"), 0)
        (kept,) = await resting(broker, "second", 1)
        assert kept.body == letter.body
        assert handled.empty()


async def test_what_cannot_be_read_is_parked_at_its_first_delivery_byte_by_byte(
    app_url: str,
) -> None:
    async with AgentApp([reader]).test(app_url) as client:
        for body in UNDECODABLE.values():
            await sent_raw(app_url, body, properties())
        await sent_raw(app_url, b"no gzip", properties(content_encoding=short(b"gzip")))
        assert await client.request("reader", Note(text="behind them")) == {"text": "behind them"}
        parked = await resting(client.broker, "reader", len(UNDECODABLE) + 1)
        assert Counter(each.body for each in parked) == Counter([*UNDECODABLE.values(), b"no gzip"])
        for each in parked:
            headers = each.properties.headers
            assert headers["aa-fault-code"] in ("INVALID_PAYLOAD", "SCHEMA_MISMATCH"), headers
            assert headers["aa-fault-message"]
            assert headers["aa-attempt"] == 1
        assert outcomes(client, "reader") == {
            "handled": 1,
            "dead-lettered": len(UNDECODABLE) + 1,
        }


async def test_bodies_over_the_local_limit_are_dead_lettered_whole(
    app_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_AGENTS_MAX_BODY_BYTES", "2048")
    refused, _ = encode(
        AgentMessage(
            sender="elsewhere",
            recipient="reader",
            type="message",
            payload={"text": "refuse"},
            metadata={"filler": "x" * 50_000},
        ),
        now=datetime.now(UTC).timestamp(),
    )
    undecodable = b"y" * 50_000
    async with AgentApp([reader]).test(app_url) as client:
        await sent_raw(app_url, refused, properties())
        await sent_raw(app_url, undecodable, properties())
        assert await client.request("reader", Note(text="small")) == {"text": "small"}
        parked = await resting(client.broker, "reader", 2)
        assert {each.body for each in parked} == {refused, undecodable}
        letters = await listed(client.broker, "reader", limit=10)
        assert all(letter.code and letter.message for letter in letters)
        await until_depth(client.broker, inbox("reader"), 0)


async def test_headers_of_foreign_types_do_not_stop_a_message_from_being_parked(
    app_url: str,
) -> None:
    async with AgentApp([reader]).test(app_url) as client:
        await sent_raw(app_url, b"not ours", properties(headers=FOREIGN_HEADERS))
        assert await client.request("reader", Note(text="behind")) == {"text": "behind"}
        (parked,) = await resting(client.broker, "reader", 1)
    headers = parked.properties.headers
    assert parked.body == b"not ours"
    assert headers["aa-fault-code"] == "INVALID_PAYLOAD"
    assert headers["aa-attempt"] == 1
    assert (headers["plain"], headers["double"], headers["float"]) == ("kept", "0.5", "0.25")
    assert "value" in headers["nested"]
    assert {"bytes", "array", "decimal", "latin"} <= set(headers)


async def test_an_error_text_of_any_length_or_none_is_cut_to_fit(app_url: str) -> None:
    async with AgentApp([reader]).test(app_url) as client:
        for kind in FAULTS:
            with pytest.raises(AgentCommunicationError) as told:
                await client.request("reader", Note(text=kind), timeout_seconds=10)
            assert len(str(told.value).encode()) < 3_000
        parked = await resting(client.broker, "reader", len(FAULTS))
    texts = {each.properties.headers["aa-fault-message"] for each in parked}
    assert all(0 < len(text.encode()) <= MAX_TEXT_BYTES for text in texts), texts
    assert {text[0] for text in texts} >= {"x", "€"}
    types = {each.properties.headers["aa-fault-type"] for each in parked}
    assert types == {"ValueError", "Mute"}
