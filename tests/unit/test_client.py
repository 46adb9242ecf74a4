import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqp_agents import client as client_module
from amqp_agents.agent import Agent, agent
from amqp_agents.app import AgentApp
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.client import Client, SyncClient, connect
from amqp_agents.config import Settings
from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import (
    BrokerConnectionError,
    ConfigurationError,
    InvalidPayloadError,
    NonRetryableError,
    RequestTimeoutError,
    TopologyMissingError,
)
from amqp_agents.protocol import AgentMessage, MessageType
from tests.unit.stage import Draft, Review, on_stage, within


@agent("quality")
async def review(draft: Draft, context: Context) -> dict[str, Any]:
    message = context.message
    return {
        "text": draft.text,
        "sender": str(message.sender),
        "type": message.message_type.value,
        "deadline_ms": message.deadline_ms,
    }


wake = threading.Event()


@agent("sleeper", time_limit_seconds=None)
async def sleep(draft: Draft) -> Review:
    await asyncio.to_thread(wake.wait, 5)
    return Review()


@agent("strict")
async def refuse(draft: Draft) -> Review:
    raise InvalidPayloadError("not like this")


async def test_everything_a_client_sends_carries_its_name() -> None:
    async with on_stage(review) as stage:
        named = await Client(stage.broker, name="shop").open()
        assert (await within(named.request(review, Draft())))["sender"] == "shop"
        await named.publish(Outgoing(Draft(), to="quality"))
        await named.close()


async def test_an_envelope_written_by_hand_is_answered_by_an_envelope() -> None:
    async with on_stage(review, refuse) as stage:
        question = AgentMessage(sender="me", recipient="quality", message_type="request")
        answer = await within(stage.client.exchange(question))
        assert answer.message_type is MessageType.RESPONSE
        assert answer.correlation_id == question.correlation_id
        question = AgentMessage(sender="me", recipient="strict", message_type="request")
        refusal = await within(stage.client.exchange(question))
        assert refusal.message_type is MessageType.ERROR


async def test_envelopes_and_outgoings_are_published() -> None:
    heard: list[str] = []
    listener = Agent("listener")

    @listener.on_event("x")
    async def hear(draft: Draft) -> None:
        heard.append(draft.text)

    async with on_stage(listener) as stage:
        await stage.client.publish(Outgoing(Draft(text="one"), event="x"))
        await stage.client.publish(
            AgentMessage(sender="me", type="event", intent="x", payload={"text": "two"})
        )
        await stage.advance(0)
        assert heard == ["one", "two"]


async def test_time_passes_at_once_in_memory() -> None:
    async with on_stage(review) as stage:
        before = stage.clock.time()
        await stage.client.advance(3600)
        assert stage.clock.time() - before == pytest.approx(3600)


async def test_a_wrong_environment_is_told_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQP_AGENTS_PUBLISH_WINDOW", "none")
    with pytest.raises(ConfigurationError, match="AMQP_AGENTS_PUBLISH_WINDOW"):
        Client(MemoryBroker())


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> list[MemoryBroker]:
    """What `connect` connects to, instead of a RabbitMQ."""
    made: list[MemoryBroker] = []

    def make(settings: Settings, *, name: str) -> MemoryBroker:
        made.append(MemoryBroker())
        return made[-1]

    monkeypatch.setattr(client_module, "RabbitMQBroker", make)
    return made


async def test_connecting_to_a_vhost_where_nothing_was_declared_is_told_and_closes_again(
    in_memory: list[MemoryBroker],
) -> None:
    with pytest.raises(TopologyMissingError):
        async with connect("amqp://broker/"):
            raise AssertionError("there are no replies")
    with pytest.raises(BrokerConnectionError, match="closed"):
        await in_memory[0].depth("any")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients of a `SyncClient`, whose agents run on a broker in memory."""
    made: list[Client] = []

    @asynccontextmanager
    async def connected(url: str | None, *, name: str) -> AsyncIterator[Client]:
        async with AgentApp([review, sleep, refuse]).test(name=name) as client:
            made.append(client)
            yield client

    monkeypatch.setattr(client_module, "connect", connected)
    return made


def question(**fields: Any) -> AgentMessage:
    return AgentMessage(**({"sender": "script", "message_type": "request"} | fields))


def test_blocking_code_asks_and_gets_the_answers_envelope(served: list[Client]) -> None:
    with SyncClient(name="script") as client:
        answer = client.request("quality", question(payload={"text": "hi"}), timeout=5)
        assert answer.payload == {
            "text": "hi",
            "sender": "script",
            "type": "request",
            "deadline_ms": 5000,
        }


@pytest.mark.parametrize("kind", list(MessageType))
def test_whatever_kind_of_message_is_given_it_is_asked_as_a_request(
    kind: MessageType, served: list[Client]
) -> None:
    with SyncClient() as client:
        answer = client.request("quality", question(message_type=kind), timeout=5)
        assert answer.payload["type"] == "request"


def test_a_deadline_of_the_callers_own_is_kept(served: list[Client]) -> None:
    with SyncClient() as client:
        answer = client.request("quality", question(deadline_ms=1234), timeout=5)
        assert answer.payload["deadline_ms"] == 1234


def test_blocking_code_gets_errors_as_exceptions(served: list[Client]) -> None:
    with SyncClient() as client:
        with pytest.raises(NonRetryableError, match="not like this"):
            client.request("strict", question(), timeout=5)
        with pytest.raises(RequestTimeoutError):
            client.request("sleeper", question(), timeout=0.05)
        wake.set()
        with pytest.raises(ConfigurationError, match="agent id"):
            client.request("no.such.id", question())


def test_a_sync_client_is_shared_by_threads(served: list[Client]) -> None:
    answers: list[str] = []
    with SyncClient() as client:

        def ask(number: int) -> None:
            text = str(number)
            answer = client.request("quality", question(payload={"text": text}), timeout=5)
            answers.append(answer.payload["text"])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
    assert sorted(answers) == sorted(map(str, range(10)))


def test_blocking_code_publishes(served: list[Client]) -> None:
    with SyncClient() as client:
        client.publish(Outgoing(Draft(), to="quality"))
        client.publish(question(recipient="quality"))


def test_a_closed_sync_client_leaves_no_thread_and_says_that_it_is_closed(
    served: list[Client],
) -> None:
    client = SyncClient(name="brief")
    client.close()
    client.close()
    assert not [t for t in threading.enumerate() if t.name == "sync-client-brief"]
    with pytest.raises(ConfigurationError, match="this client is closed; make a new SyncClient"):
        client.request("quality", question())


def test_a_sync_client_that_cannot_connect_leaves_no_thread(
    in_memory: list[MemoryBroker],
) -> None:
    with pytest.raises(TopologyMissingError):
        SyncClient(name="failed")
    assert not [t for t in threading.enumerate() if t.name == "sync-client-failed"]
