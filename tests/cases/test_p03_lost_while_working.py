"""The connection is lost while handlers work: they finish, and the delivery comes again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqp_agents import AgentMessage, agent
from tests.cases.checks import RECONNECT_SECONDS, canary
from tests.cases.stage import Done, Place, Stage, Work, message, on_stage, until
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq

FAULTS = ["cut", "reset", "half_open", "refused for a second"]


class Effects:
    """What each message did before and after it waited."""

    def __init__(self) -> None:
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.go = asyncio.Event()


@asynccontextmanager
async def staged(
    place: Place, proxy: Proxy, effects: Effects, concurrency: int
) -> AsyncIterator[Stage]:
    @agent("work", concurrency=concurrency)
    async def work(given: Work, sent: AgentMessage) -> Done:
        effects.before[sent.message_id] += 1
        try:
            if given.n and effects.before[sent.message_id] == 1:
                await effects.go.wait()
        except asyncio.CancelledError:
            effects.cancelled[sent.message_id] += 1
            raise
        effects.after[sent.message_id] += 1
        return Done(n=given.n)

    url = proxy.url(place.url)
    async with on_stage(place, work, worker_url=url, heartbeat_seconds=2) as stage:
        yield stage


async def strike(proxy: Proxy, fault: str) -> None:
    if fault == "refused for a second":
        proxy.refuse()
        proxy.reset()
        await asyncio.sleep(1)
        proxy.heal()
    else:
        getattr(proxy, fault)()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_handler_finishes_and_its_delivery_comes_again(
    place: Place, fault: str, concurrency: int
) -> None:
    effects = Effects()
    unretrieved: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unretrieved.append(told))
    async with Proxy(place.port) as proxy, staged(place, proxy, effects, concurrency) as stage:
        sent = [message("work", n) for n in range(1, concurrency + 1)]
        for each in sent:
            await stage.caller.publish(each)
        await until(lambda: len(effects.before) == concurrency, "all started")
        await strike(proxy, fault)
        await until(lambda: stage.broker.connections >= 4, "connected again", RECONNECT_SECONDS)
        effects.go.set()
        await until(lambda: all(effects.after[m.message_id] >= 2 for m in sent), "came again", 20)
        await canary(stage, "work", RECONNECT_SECONDS)
        assert not effects.cancelled
        assert {effects.before[m.message_id] for m in sent} == {2}
        redelivered = [d for d in stage.broker.seen if d.redelivered]
        assert len(redelivered) >= concurrency
        assert {d.attempt for d in redelivered} == {1}  # no attempt was spent
        assert stage.counted("lost_settlements_total", agent="work") == concurrency
        await stage.stop()
        assert await stage.depth("agent.work") == 0
        assert await stage.dead_letters("work") == []
        proxy.heal()
    assert unretrieved == []


@pytest.mark.parametrize("fault", ["cut", "reset"])
async def test_the_caller_gets_one_answer(place: Place, fault: str) -> None:
    effects = Effects()
    async with Proxy(place.port) as proxy, staged(place, proxy, effects, 1) as stage:
        asking = asyncio.create_task(stage.caller.request("work", {"n": 3}, timeout_seconds=10))
        await until(lambda: len(effects.before) == 1, "started")
        await strike(proxy, fault)
        await until(lambda: stage.broker.connections >= 4, "connected again", RECONNECT_SECONDS)
        effects.go.set()
        assert await asking == {"n": 3}
        await canary(stage, "work", RECONNECT_SECONDS)
        assert not stage.caller.requester.pending


@pytest.mark.xfail(strict=True, reason="needs: idempotency ledger")
@pytest.mark.parametrize("fault", ["cut", "reset"])
async def test_what_was_finished_is_not_done_twice(place: Place, fault: str) -> None:
    effects = Effects()
    async with Proxy(place.port) as proxy, staged(place, proxy, effects, 1) as stage:
        sent = message("work", 3)
        await stage.caller.publish(sent)
        await until(lambda: len(effects.before) == 1, "started")
        await strike(proxy, fault)
        effects.go.set()
        await until(lambda: stage.broker.connections >= 4, "connected again", RECONNECT_SECONDS)
        await canary(stage, "work", RECONNECT_SECONDS)
        assert effects.after[sent.message_id] == 1
