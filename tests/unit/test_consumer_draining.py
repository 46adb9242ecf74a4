"""How many handlers run at once, how long each may, and how they end when a worker stops."""

import asyncio
import threading
from typing import Any

import pytest

from amqp_agents.agent import agent
from amqp_agents.config import RetryPolicy
from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import AgentCommunicationError, ErrorCode
from tests.unit.stage import Draft, Review, header, on_stage, within


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_handlers_run_than_were_allowed(concurrency: int) -> None:
    running, most, go = 0, 0, asyncio.Event()

    @agent("bounded", concurrency=concurrency)
    async def bounded(draft: Draft) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    async with on_stage(bounded) as stage:
        calls = [asyncio.create_task(stage.client.request(bounded, Draft())) for _ in range(10)]
        await stage.advance(0)
        assert running == concurrency
        assert stage.counted("handlings", "bounded") == concurrency
        go.set()
        await within(asyncio.gather(*calls))
        assert most == concurrency
        assert stage.counted("handlings", "bounded") == 0


async def test_blocking_handlers_run_beside_the_loop_and_beside_each_other() -> None:
    together = threading.Barrier(3, timeout=5)
    threads: set[int] = set()

    @agent("blocking", concurrency=3)
    def blocking(draft: Draft) -> None:
        together.wait()
        threads.add(threading.get_ident())

    async with on_stage(blocking) as stage:
        await within(asyncio.gather(*(stage.client.request(blocking, Draft()) for _ in range(3))))
    assert len(threads) == 3
    assert threading.get_ident() not in threads


async def test_one_blocking_handler_at_a_time_where_one_is_allowed() -> None:
    running, overlaps = 0, 0
    lock = threading.Lock()

    @agent("blocking", concurrency=1)
    def blocking(draft: Draft) -> None:
        nonlocal running, overlaps
        with lock:
            running += 1
            overlaps += running > 1
        with lock:
            running -= 1

    async with on_stage(blocking) as stage:
        await within(asyncio.gather(*(stage.client.request(blocking, Draft()) for _ in range(20))))
    assert overlaps == 0


async def test_a_handler_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    attempts: list[int] = []
    cancelled: list[bool] = []

    @agent("slow", time_limit_seconds=5)
    async def slow(draft: Draft, context: Context) -> dict[str, int]:
        attempts.append(context.attempt)
        if context.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(context.cancelled)
        return {"attempt": context.attempt}

    async with on_stage(slow) as stage:
        assert await stage.ask(slow, Draft(), during=7) == {"attempt": 2}
        assert attempts == [1, 2]
        assert stage.counted("deliveries", "slow", "retried") == 1


async def test_a_blocking_handler_that_takes_too_long_can_see_that_it_should_end() -> None:
    go, seen = threading.Event(), threading.Event()

    @agent("stuck", time_limit_seconds=5, retry=RetryPolicy(max_attempts=1))
    def stuck(draft: Draft, context: Context) -> None:
        go.wait(5)
        if context.cancelled:
            seen.set()

    async with on_stage(stuck) as stage:
        with pytest.raises(AgentCommunicationError, match=r"did not finish within 5 s") as raised:
            await stage.ask(stuck, Draft(), during=6)
        assert raised.value.code is ErrorCode.TIMEOUT
        go.set()
        assert await asyncio.to_thread(seen.wait, 5)


async def test_a_handler_may_bound_its_own_waiting() -> None:
    @agent("careful", retry=RetryPolicy(max_attempts=1))
    async def careful(draft: Draft) -> Review:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return Review(risk="unknown")
        raise AssertionError("it waited")

    async with on_stage(careful) as stage:
        assert (await stage.ask(careful, Draft())).risk == "unknown"


def waiting(name: str, go: asyncio.Event, *, concurrency: int = 2) -> Any:
    @agent(name, concurrency=concurrency)
    async def wait(draft: Draft) -> None:
        await go.wait()

    return wait


async def test_a_drain_lets_handlers_finish_and_takes_nothing_new() -> None:
    go = asyncio.Event()
    slow = waiting("slow", go)
    async with on_stage(slow) as stage:
        calls = [asyncio.create_task(stage.client.request(slow, Draft())) for _ in range(5)]
        await stage.advance(0)
        draining = asyncio.create_task(stage.serving.consumers[0].drain(5.0))
        await stage.advance(0)
        go.set()
        assert await within(draining) == 0
        await within(asyncio.gather(*calls[:2]))
        assert await stage.broker.depth("agent.slow") == 3
        for call in calls[2:]:
            call.cancel()


async def test_what_was_prefetched_goes_back_at_a_drain() -> None:
    go = asyncio.Event()
    slow = waiting("slow", go)
    async with on_stage(slow) as stage:
        consumer = stage.serving.consumers[0]
        consumer._slots = asyncio.Semaphore(1)  # of two that were delivered, one waits
        for _ in range(2):
            await stage.client.publish(Outgoing(Draft(), to="slow"))
        await stage.advance(0)
        draining = asyncio.create_task(consumer.drain(5.0))
        await stage.advance(0)
        go.set()
        assert await within(draining) == 0
        assert stage.counted("deliveries", "slow", "handled") == 1
        assert stage.counted("deliveries", "slow", "released") == 1
        (back,) = await stage.waiting("agent.slow")
        assert back.delivery_count is None  # nobody failed at it


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "sync"])
async def test_what_does_not_finish_in_the_grace_period_is_handed_back(blocking: bool) -> None:
    started, go = threading.Event(), threading.Event()

    @agent("stuck")
    async def stuck(draft: Draft) -> None:
        started.set()
        await asyncio.Event().wait()

    @agent("stuck")
    def stuck_in_a_thread(draft: Draft) -> None:
        started.set()
        go.wait(5)

    async with on_stage(stuck_in_a_thread if blocking else stuck) as stage:
        await stage.client.publish(Outgoing(Draft(), to="stuck"))
        await stage.advance(0)
        assert await asyncio.to_thread(started.wait, 5)
        assert await within(stage.serving.consumers[0].drain(0.0)) == 1
        go.set()
        (back,) = await stage.waiting("agent.stuck")
        assert (back.redelivered, header(back, "aa-attempt")) == (True, None)
        assert stage.counted("deliveries", "stuck", "released") == 1
        assert await stage.dead_letters("stuck") == []


async def test_a_drain_of_an_idle_consumer_ends_at_once_and_can_be_repeated() -> None:
    async with on_stage(waiting("idle", asyncio.Event())) as stage:
        consumer = stage.serving.consumers[0]
        assert await within(consumer.drain(100.0), 1.0) == 0
        assert await within(consumer.drain(100.0), 1.0) == 0


async def test_a_lost_connection_does_not_touch_the_handler_only_its_ack() -> None:
    go, finished = asyncio.Event(), []

    @agent("steady")
    async def steady(draft: Draft) -> None:
        await go.wait()
        finished.append(draft)

    async with on_stage(steady) as stage:
        await stage.client.publish(Outgoing(Draft(), to="steady"))
        await stage.advance(0)
        stage.faults.disconnect()
        await stage.advance(1)
        go.set()
        await stage.advance(0)
        assert len(finished) == 1
        assert stage.counted("lost_settlements", "steady") == 1
        stage.faults.reconnect()
        await stage.advance(0)
        assert len(finished) == 2  # the broker delivered it again
        assert await stage.broker.depth("agent.steady") == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_work_that_is_done_is_not_done_again_because_its_caller_cannot_be_told(
    *, fails: bool
) -> None:
    runs = 0

    @agent("done", retry=RetryPolicy(max_attempts=1))
    async def done(draft: Draft) -> Review:
        nonlocal runs
        runs += 1
        if fails:
            raise ValueError("no")
        return Review()

    async with on_stage(done) as stage:
        stage.faults.lose(1_000, exchange="agent.reply")
        call = asyncio.create_task(stage.client.request(done, Draft(), timeout_seconds=60))
        await stage.advance(1)
        assert runs == 1

        await stage.serving.drain(0.0)

        assert await stage.broker.depth("agent.done") == 0
        assert len(await stage.dead_letters("done")) == (1 if fails else 0)
        call.cancel()


async def test_a_delivery_lost_while_it_waited_for_a_slot_is_not_handled() -> None:
    runs, go = 0, asyncio.Event()

    @agent("busy", concurrency=1)
    async def busy(draft: Draft) -> None:
        nonlocal runs
        runs += 1
        await go.wait()

    async with on_stage(busy) as stage:
        await stage.client.publish(Outgoing(Draft(), to="busy", ttl=3600))
        await stage.advance(0)
        for _ in range(4):  # each time, the message is delivered again and waits for the slot
            stage.faults.disconnect()
            stage.faults.reconnect()
            await stage.advance(5)
        assert runs == 1

        go.set()
        await stage.journal.until(lambda: stage.journal.what("busy").count("handled") == 2)
        await stage.advance(5)

        assert runs == 2
        assert await stage.broker.depth("agent.busy") == 0
