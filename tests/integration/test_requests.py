"""Asking agents: how fast an answer comes, and that no request outlives its time limit."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any
from urllib.parse import urlsplit

import pytest

from amqp_agents import (
    AgentCommunicationError,
    AgentError,
    AgentMessage,
    BrokerConnectionError,
    BrokerError,
    Client,
    ErrorCode,
    NonRetryableError,
    RabbitMQBroker,
    RequestTimeoutError,
    Settings,
    SyncClient,
    UnroutableMessageError,
    connect,
)
from amqp_agents.topology.names import dead_letter_queue, reply_queue
from tests.conformance.waiting import until, until_depth
from tests.integration.asked import Answer, Asked, Question, asked_agents
from tests.nodes.node import Node
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    asked = Asked()
    yield asked
    asked.gate.set()


@pytest.fixture
async def client(app_url: str, asked: Asked) -> AsyncIterator[Client]:
    """A client of the agents, in one process with them."""
    async with asked_agents(asked).test(app_url) as client:
        yield client
        asked.gate.set()


@pytest.fixture
async def proxy(app_url: str) -> AsyncIterator[Proxy]:
    """A way to the broker that the test may break."""
    async with Proxy(urlsplit(app_url).port or 5672) as proxy:
        yield proxy


@pytest.fixture
async def proxied(client: Client, app_url: str, proxy: Proxy) -> AsyncIterator[Client]:
    """A second client, behind the proxy; the agents' own way stays whole."""
    async with connect(proxy.url(app_url), name="proxied") as proxied:
        yield proxied
        proxy.heal()


def nothing_pending(client: Client) -> bool:
    return not client.requester.pending and not client.requester._correlated


def late_replies(client: Client) -> float:
    return client.telemetry.metrics.registry.get_sample_value("amqp_agents_late_replies_total") or 0


async def ended(asking: Awaitable[Any]) -> tuple[float, Any]:
    """How long a request took, and its answer or its error."""
    began = time.monotonic()
    outcomes = await asyncio.gather(asking, return_exceptions=True)
    return time.monotonic() - began, outcomes[0]


async def test_fifty_parallel_requests_take_little_longer_than_one(client: Client) -> None:
    await client.request("steady", Question())

    async def all_fifty() -> float:
        began = time.monotonic()
        answers = await asyncio.gather(
            *(client.request("steady", {"number": n}, returns=Answer) for n in range(50))
        )
        assert [answer.number for answer in answers] == list(range(50))
        return time.monotonic() - began

    # The best of some: what else runs on the machine can only make it slower.
    tries = [await all_fifty() for _ in range(10)]
    print(f"\n50 parallel requests: {', '.join(f'{seconds:.3f}' for seconds in tries)} s")
    assert min(tries) < 0.4, tries


async def test_an_agent_nobody_declared_is_reported_at_once(client: Client) -> None:
    await client.request("quick", Question())
    took, error = await ended(client.request("nobody", Question(), timeout_seconds=5))
    assert isinstance(error, UnroutableMessageError)
    assert "agent 'nobody' has no queue" in str(error)
    assert took < 0.2
    assert nothing_pending(client)


async def test_a_handlers_error_reaches_the_caller_typed_and_soon(
    client: Client, asked: Asked
) -> None:
    waits = []
    for _ in range(5):
        with pytest.raises(NonRetryableError) as refused:
            await client.request("refusing", Question(), timeout_seconds=5)
        waits.append(time.monotonic() - asked.raised_at)
    assert refused.value.code is ErrorCode.PERMISSION_DENIED
    assert refused.value.failed_agent == "refusing"
    assert "not for you" in str(refused.value)
    assert statistics.median(waits) < 0.05, waits
    await until_depth(client.broker, dead_letter_queue("refusing"), 5)


async def test_an_error_after_the_last_attempt_says_that_asking_again_may_help(
    client: Client,
) -> None:
    with pytest.raises(AgentCommunicationError) as failed:
        await client.request("failing", Question(), timeout_seconds=5)
    assert not isinstance(failed.value, NonRetryableError)
    assert failed.value.code is ErrorCode.DEPENDENCY_FAILED
    assert failed.value.retryable


async def test_a_time_limit_holds_when_the_handler_never_answers(
    client: Client, asked: Asked
) -> None:
    took, error = await ended(client.request("gated", Question(), timeout_seconds=2))
    assert not asked.began.locked(), "the handler was to be called"
    assert isinstance(error, RequestTimeoutError)
    assert 2 <= took <= 2.2


async def test_a_time_limit_holds_when_the_connection_is_a_black_hole(
    proxied: Client, proxy: Proxy, asked: Asked
) -> None:
    waiting = asyncio.create_task(ended(proxied.request("gated", Question(), timeout_seconds=2)))
    await asyncio.wait_for(asked.began.acquire(), 2)
    proxy.black_hole()
    took, error = await ended(proxied.request("quick", Question(), timeout_seconds=2))
    assert isinstance(error, BrokerError)
    assert 2 <= took <= 2.2
    took, error = await waiting
    assert isinstance(error, RequestTimeoutError)
    assert 2 <= took <= 2.2
    assert proxy.counters.bytes_swallowed > 0
    assert nothing_pending(proxied)


@pytest.mark.node
async def test_a_time_limit_holds_when_the_broker_is_stopped(node: Node, asked: Asked) -> None:
    url = node.url_for(node.create_vhost())
    async with asked_agents(asked).test(url) as client:
        waiting = asyncio.create_task(ended(client.request("gated", Question(), timeout_seconds=3)))
        await asyncio.wait_for(asked.began.acquire(), 3)
        await asyncio.to_thread(node.kill)
        assert not node.running
        took, error = await ended(client.request("quick", Question(), timeout_seconds=2))
        assert isinstance(error, BrokerError)
        assert 2 <= took <= 2.2
        took, error = await waiting
        assert isinstance(error, RequestTimeoutError)
        assert 3 <= took <= 3.3
        assert nothing_pending(client)
        asked.gate.set()


async def test_a_reply_that_comes_late_is_counted_and_offered_to_the_hook(
    client: Client, asked: Asked, app_url: str
) -> None:
    late: list[AgentMessage] = []
    broker = RabbitMQBroker(Settings(url=app_url), name="impatient")
    await broker.connect(timeout_seconds=10)
    impatient = await Client(broker, name="impatient", on_late_reply=late.append).open()
    with pytest.raises(RequestTimeoutError):
        await impatient.request("gated", Question(number=7), timeout_seconds=0.5)
    assert (late, late_replies(impatient)) == ([], 0)
    asked.gate.set()

    async def counted() -> bool:
        return late_replies(impatient) == 1

    await until(counted, "the late reply")
    assert [message.payload for message in late] == [{"number": 7}]
    await impatient.close()
    await broker.close()


async def test_a_cancelled_caller_leaves_nothing_behind(client: Client, asked: Asked) -> None:
    asking = asyncio.create_task(client.request("gated", Question(), timeout_seconds=30))
    await asyncio.wait_for(asked.began.acquire(), 5)
    assert len(client.requester.pending) == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert nothing_pending(client)
    asked.gate.set()
    assert await client.request("quick", {"number": 1}, returns=Answer) == Answer(number=1)


async def test_a_thousand_requests_that_time_out_leave_nothing_behind(
    client: Client, asked: Asked
) -> None:
    asking = [
        asyncio.create_task(client.request("gated", Question(number=n), timeout_seconds=3))
        for n in range(1_000)
    ]
    await asyncio.wait_for(asked.began.acquire(), 3)
    assert len(client.requester.pending) == 1_000
    errors = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(error) for error in errors} == {RequestTimeoutError}
    assert nothing_pending(client)


async def test_direct_replies_need_no_reply_queue(client: Client, app_url: str) -> None:
    async with connect(app_url, name="direct", direct=True) as direct:
        answers = await asyncio.gather(
            *(direct.request("quick", {"number": n}, returns=Answer) for n in range(20))
        )
        assert [answer.number for answer in answers] == list(range(20))
        with pytest.raises(NonRetryableError):
            await direct.request("refusing", Question())
        depth = client.broker.depth
        assert await depth(reply_queue(direct.requester.instance)) is None
        assert await depth(reply_queue(client.requester.instance)) == 0


async def test_blocking_code_asks_from_a_thread_of_its_own(client: Client, app_url: str) -> None:
    def ask() -> AgentMessage:
        question = AgentMessage(sender="script", type="task.request", payload={"number": 5})
        with SyncClient(app_url, name="script") as blocking:
            with pytest.raises(NonRetryableError, match="not for you"):
                blocking.request("refusing", question.model_copy(update={"message_id": "other"}))
            with pytest.raises(RequestTimeoutError):
                blocking.request("gated", question, timeout=0.3)
            return blocking.request("quick", question, timeout=5)

    answer = await asyncio.wait_for(asyncio.to_thread(ask), 15)
    assert answer.payload == {"number": 5}
    assert answer.sender == "quick"


async def test_requests_across_a_cut_connection_end_within_their_limit(
    proxied: Client, proxy: Proxy
) -> None:
    async def ask_and_cut(after_seconds: float) -> list[tuple[float, Any]]:
        asking = [
            asyncio.create_task(
                ended(proxied.request("steady", Question(number=n), timeout_seconds=5))
            )
            for n in range(20)
        ]
        await asyncio.sleep(after_seconds)
        proxy.reset()
        return await asyncio.gather(*asking)

    for cut, after_seconds in enumerate((0.0, 0.01, 0.1, 0.2), start=1):
        outcomes = await ask_and_cut(after_seconds)
        assert proxy.counters.faults["reset"] == cut
        assert all(took <= 5.25 for took, _ in outcomes)
        assert all(isinstance(outcome, dict | AgentError) for _, outcome in outcomes), outcomes
        answered = [outcome for _, outcome in outcomes if isinstance(outcome, dict)]
        assert len(answered) >= 15, outcomes
    assert proxy.counters.connections > 2
    assert nothing_pending(proxied)


async def test_answers_come_at_once_although_the_old_connection_is_half_open(
    proxied: Client, proxy: Proxy
) -> None:
    assert await proxied.request("quick", {"number": 1}) == {"number": 1}
    before = proxy.counters.connections
    proxy.half_open()
    # The first request waits for the new connections; the broker still holds the old ones.
    await proxied.request("quick", Question(), timeout_seconds=10)
    assert proxy.counters.connections == before + 2
    began = time.monotonic()
    answers = await asyncio.gather(
        *(proxied.request("quick", {"number": n}, timeout_seconds=10) for n in range(50))
    )
    assert answers == [{"number": n} for n in range(50)]
    assert time.monotonic() - began < 2


async def test_closing_a_sync_client_wakes_the_threads_that_wait_for_it(
    client: Client, app_url: str, asked: Asked
) -> None:
    def asks(blocking: SyncClient) -> object:
        question = AgentMessage(sender="x", type="task.request", payload={"number": 1})
        try:
            return blocking.request("gated", question, timeout=60)
        except BrokerConnectionError as error:
            return error

    blocking = await asyncio.to_thread(SyncClient, app_url, name="script")
    waiting = asyncio.create_task(asyncio.to_thread(asks, blocking))

    async def handled() -> bool:
        return bool(client.telemetry.metrics.handlings.labels("gated")._value.get() == 1)

    await until(handled, "the request at its agent")
    await asyncio.to_thread(blocking.close)
    assert isinstance(await asyncio.wait_for(waiting, 5), BrokerConnectionError)
