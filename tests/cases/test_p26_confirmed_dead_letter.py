"""A delivery is acked only once its copy is confirmed: it is in the queue, or in the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqp_agents import RetryPolicy, agent
from amqp_agents.brokers.base import Publishing
from amqp_agents.errors import PublishRejectedError
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology import names
from tests.cases.checks import canary, odd, total
from tests.cases.stage import Place, Stage, Work, body_of, on_stage, until
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq

DEAD, LEVEL_0 = names.dead_letter_queue("work"), names.delay_level(0)


@asynccontextmanager
async def staged(
    place: Place, *, attempts: int = 1, base_seconds: float = 1, **options: Any
) -> AsyncIterator[Stage]:
    """One agent that fails for n = 1, twice at most for n = 2, and handles the rest."""
    failed: list[int] = []

    @agent(
        "work", concurrency=2, retry=RetryPolicy(max_attempts=attempts, base_seconds=base_seconds)
    )
    async def work(given: Work) -> None:
        failed.append(given.n)
        if given.n == 1 or (given.n == 2 and failed.count(2) == 1):
            raise ValueError("it fails")

    async with on_stage(place, work, **options) as stage:
        yield stage


async def kept(stage: Stage, body: bytes, message_id: str) -> None:
    """The delivery stays unsettled, is tried again with pauses, told and counted each time."""
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body)
    await until(
        lambda: total(stage, "work", "unsettled_total") >= case.counters["unsettled_total"] + 2,
        "tried twice",
        60,
    )
    tries = total(stage, "work", "unsettled_total") - case.counters["unsettled_total"]
    assert tries <= 4, "a hot loop"
    assert stage.broker.deliveries[body] == 1
    told = [e for e in stage.events("delivery_unsettled") if e["message_id"] == message_id]
    assert told
    assert {e["queue"] for e in told} == {"agent.work"}
    await canary(stage, "work")


async def resting_once(stage: Stage, body: bytes, queue: str, limit: float = 20) -> None:
    async def there() -> bool:
        return [d.body for d in await stage.waiting(queue)].count(body) == 1

    await until(there, f"one copy in {queue}", limit)


async def test_without_a_dead_letter_queue_it_goes_to_the_lost_ones(place: Place) -> None:
    body, message_id = body_of("work", 1)
    async with staged(place) as stage:
        await stage.place.api("DELETE", f"queues/{{}}/{DEAD}")
        case = odd(stage, "work", body, message_id)
        await stage.put("work", body)
        await resting_once(stage, body, names.LOST)
        await canary(stage, "work")
        assert total(stage, "work", "dead_letters_total") == 1
        assert stage.broker.deliveries[body] == 1
        assert stage.broker.connections == case.connections


@pytest.mark.parametrize("deleted", ["queues", "exchange"])
async def test_where_no_queue_takes_dead_letters_it_stays(place: Place, deleted: str) -> None:
    body, message_id = body_of("work", 1)
    async with staged(place, publish_timeout_seconds=1) as stage:
        gone = (
            [f"queues/{{}}/{DEAD}", f"queues/{{}}/{names.LOST}"]
            if deleted == "queues"
            else [f"exchanges/{{}}/{names.DLX}"]
        )
        for path in gone:
            await stage.place.api("DELETE", path)
        await kept(stage, body, message_id)
        await stage.stop(0.0)
        assert [d.body for d in await stage.waiting("agent.work")] == [body]
        # Once there is a place for it again, it rests there.
        await stage.start()
        await declared(stage)
        await resting_once(stage, body, DEAD)
        await canary(stage, "work")


async def declared(stage: Stage) -> None:
    await stage.caller.broker.apply(stage.app.topology())


async def limited(stage: Stage, queue: str) -> None:
    """A policy as another team would set it: the queue is full, and refuses what comes."""
    full = {"max-length": 1, "overflow": "reject-publish"}
    policy = {
        "pattern": f"^{queue.replace('.', '[.]')}$",
        "definition": full,
        "priority": 100,
        "apply-to": "queues",
    }
    await stage.place.api("PUT", "policies/{}/full", policy)
    filler = Publishing("", queue, b"{}", Properties())

    async def refuses() -> bool:
        try:
            await stage.caller.broker.publish(filler, timeout_seconds=5)
        except PublishRejectedError:
            return True
        return False

    await until(refuses, f"{queue} full")


async def test_a_full_dead_letter_queue_keeps_it_in_the_inbox(place: Place) -> None:
    async with staged(place, publish_timeout_seconds=1) as stage:
        await limited(stage, DEAD)
        body, message_id = body_of("work", 1)
        await kept(stage, body, message_id)
        await stage.place.api("DELETE", f"queues/{{}}/{DEAD}/contents")
        await resting_once(stage, body, DEAD)
        await canary(stage, "work")


async def test_without_a_way_into_the_delays_a_retry_stays(place: Place) -> None:
    body, message_id = body_of("work", 2)
    async with staged(place, attempts=3, publish_timeout_seconds=1) as stage:
        await stage.place.api("DELETE", f"exchanges/{{}}/{names.DELAY}")
        await kept(stage, body, message_id)
        await declared(stage)
        await until(lambda: stage.journal.count("handled", message_id) == 1, "retried", 20)
        await canary(stage, "work")
        assert stage.broker.deliveries[body] == 2


async def test_a_full_delay_queue_keeps_the_retry_in_the_inbox(place: Place) -> None:
    body, message_id = body_of("work", 2)
    async with staged(place, attempts=3, base_seconds=32, publish_timeout_seconds=1) as stage:
        await limited(stage, names.delay_level(5))
        await kept(stage, body, message_id)
        await stage.place.api("DELETE", f"queues/{{}}/{names.delay_level(5)}/contents")
        await until(lambda: stage.journal.count("retried", message_id) == 1, "parked", 20)
        await canary(stage, "work")


async def test_a_delay_queue_that_is_gone_makes_a_retry_early_not_lost(place: Place) -> None:
    body, message_id = body_of("work", 2)
    async with staged(place, attempts=3) as stage:
        await stage.place.api("DELETE", f"queues/{{}}/{LEVEL_0}")
        await stage.put("work", body)
        await until(lambda: stage.journal.count("handled", message_id) == 1, "retried", 10)
        assert stage.broker.deliveries[body] == 2
        await canary(stage, "work")


@pytest.mark.parametrize("n", [1, 2], ids=["dead letter", "retry"])
async def test_a_cut_between_the_copy_and_the_ack_loses_nothing(place: Place, n: int) -> None:
    """The copy is confirmed, then the way of the ack is gone: two copies of one id at worst."""
    body, message_id = body_of("work", n)
    async with Proxy(place.port) as proxy:
        url = proxy.url(place.url)
        async with staged(place, attempts=n, worker_url=url) as stage:
            publish = stage.broker.publish

            async def cut_after(publishing: Any, **options: Any) -> None:
                await publish(publishing, **options)
                if publishing.body == body and proxy.counters.faults["reset"] == 0:
                    proxy.reset()

            stage.broker.publish = cut_after  # type: ignore[method-assign]
            await stage.put("work", body)
            await until(lambda: total(stage, "work", "lost_settlements_total") == 1, "cut")
            await canary(stage, "work", 10)

            async def quiet() -> bool:
                running = stage.counted("handlings", agent="work")
                return running == 0 and await stage.depth("agent.work") == 0

            await until(quiet, "all settled")
            if n == 1:
                copies = [d for d in await stage.dead_letters("work") if d.body == body]
                assert 1 <= len(copies) <= 2
                ids = {d.properties.headers["aa-orig-routing-key"] for d in copies}
                assert len(ids) == 1
            else:
                await until(lambda: stage.journal.count("handled", message_id) >= 1, "done", 10)
                await asyncio.sleep(0)
            proxy.heal()
