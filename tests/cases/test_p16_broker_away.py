"""Publishing while the broker is away: it waits, or says so at its limit, never silently."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from amqp_agents import BrokerError, Client, Outgoing, agent, connect
from amqp_agents.errors import BrokerConnectionError, OutcomeUnknownError
from tests.cases.stage import Place, Stage, Told, Work, message, on_stage, until
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq

PASSWORD = "guest:guest"


@pytest.fixture
async def proxy(place: Place) -> AsyncIterator[Proxy]:
    async with Proxy(place.port) as proxy:
        yield proxy
        proxy.heal()


@pytest.fixture
async def stage(place: Place) -> AsyncIterator[Stage]:
    """An agent that is not behind the proxy, and handles what arrives."""

    @agent("work")
    async def work(given: Work) -> None: ...

    async with on_stage(place, work) as stage:
        yield stage


@pytest.fixture
def told() -> Iterator[Told]:
    told, logger = Told(), logging.getLogger("amqp_agents")
    logger.addHandler(told)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield told
    logger.setLevel(level)
    logger.removeHandler(told)


def behind(place: Place, proxy: Proxy, **changes: Any) -> Any:
    settings = place.settings(url=proxy.url(place.url), **changes)
    return connect(settings=settings, name="behind")


def away(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.reset()


async def confirmed_once(stage: Stage, sent: Any) -> None:
    await until(lambda: stage.journal.count("handled", sent.message_id) == 1, "handled")


async def test_a_publish_in_an_outage_is_confirmed_after_it(
    stage: Stage, place: Place, proxy: Proxy
) -> None:
    async with behind(place, proxy, publish_timeout_seconds=20) as client:
        away(proxy)
        began = time.monotonic()
        sent = [message("work", n) for n in range(20)]
        publishing = [asyncio.create_task(client.publish(each)) for each in sent]
        await asyncio.wait(publishing, timeout=3)
        assert not any(task.done() for task in publishing)
        proxy.heal()
        await asyncio.wait_for(asyncio.gather(*publishing), 15)
        assert time.monotonic() - began > 3
        for each in sent:
            await confirmed_once(stage, each)
        await client.publish(message("work"))


@pytest.mark.parametrize("what", ["direct", "event", "broadcast"])
async def test_a_publish_in_an_outage_longer_than_its_limit_is_one_clear_error(
    stage: Stage, place: Place, proxy: Proxy, what: str
) -> None:
    async with behind(place, proxy, publish_timeout_seconds=1) as client:
        away(proxy)
        began = time.monotonic()
        target = {"to": "work"} if what == "direct" else {what: "order.placed"}
        with pytest.raises(BrokerConnectionError, match="not sent within") as failed:
            await client.publish(Outgoing(Work(), **target))
        assert 0.9 <= time.monotonic() - began < 2
        assert "lost" in str(failed.value) or "refused" in str(failed.value)
        assert PASSWORD not in str(failed.value)
        proxy.heal()
        await eventually(client)


async def eventually(client: Client) -> None:
    """It works again, within the limit of a later publish."""

    async def works() -> bool:
        try:
            await client.publish(message("work"))
        except BrokerError:
            return False
        return True

    await until(works, "publishing again", 10)


@pytest.mark.parametrize("fault", ["black_hole", "stall"])
async def test_an_answer_that_never_comes_ends_at_the_limit(
    stage: Stage, place: Place, proxy: Proxy, fault: str
) -> None:
    async with behind(place, proxy, publish_timeout_seconds=1, heartbeat_seconds=600) as client:
        await client.publish(message("work"))
        getattr(proxy, fault)()
        began = time.monotonic()
        answers = await asyncio.gather(
            *(client.publish(message("work")) for _ in range(20)), return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {OutcomeUnknownError}
        assert 0.9 <= time.monotonic() - began < 2
        proxy.heal()
        await eventually(client)


async def test_what_is_sent_again_keeps_its_id(stage: Stage, place: Place, proxy: Proxy) -> None:
    """The confirm is lost, so it is sent twice: both copies say that they are one message."""
    async with behind(place, proxy, publish_timeout_seconds=20) as client:
        await client.publish(message("work"))
        proxy.stall()
        sent = message("work", 5)
        publishing = asyncio.create_task(client.publish(sent))
        publisher = client.broker._publisher  # type: ignore[attr-defined]
        await until(lambda: publisher._window._value < 500, "under way")
        await asyncio.sleep(0.2)
        # The bytes reach the broker; the way of the confirm is cut.
        proxy.heal()
        proxy.reset()
        await asyncio.wait_for(publishing, 15)
        await until(lambda: stage.journal.count("handled", sent.message_id) >= 1, "handled")
        keys = {
            e.message.idempotency_key
            for e in stage.journal.entries
            if e.message.message_id == sent.message_id
        }
        assert keys == {sent.message_id}


async def test_a_start_waits_for_a_broker_that_comes_up_within_the_limit(
    stage: Stage, place: Place, proxy: Proxy, told: Told
) -> None:
    proxy.refuse()
    healing = asyncio.get_running_loop().call_later(3, proxy.heal)
    began = time.monotonic()
    async with behind(place, proxy, connect_timeout_seconds=20) as client:
        assert time.monotonic() - began > 2.9
        await client.publish(message("work"))
    healing.cancel()
    lines = [r.getMessage() for r in told.records]
    attempts = [line for line in lines if line.startswith("connect_failed link=behind/publish")]
    assert attempts
    numbers = [int(line.split("attempt=")[1].split()[0]) for line in attempts]
    assert numbers == list(range(1, len(numbers) + 1))  # one line each
    assert not [line for line in lines if PASSWORD in line]


async def test_a_start_without_a_broker_fails_at_the_limit_and_names_the_mend(
    place: Place, proxy: Proxy, told: Told
) -> None:
    proxy.refuse()
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="cannot reach RabbitMQ at") as failed:
        async with behind(place, proxy, connect_timeout_seconds=1.5):
            pass
    assert 1.4 <= time.monotonic() - began < 4
    assert "connection refused" in str(failed.value)
    assert "AMQP_AGENTS_URL" in str(failed.value)
    assert PASSWORD not in str(failed.value)
    assert not [r for r in told.records if PASSWORD in r.getMessage()]


async def test_a_start_into_a_black_hole_fails_at_the_limit(place: Place, proxy: Proxy) -> None:
    proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError):
        async with behind(place, proxy, connect_timeout_seconds=1.5):
            pass
    assert time.monotonic() - began < 6
