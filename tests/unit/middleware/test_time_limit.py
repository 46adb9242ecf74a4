import asyncio

import pytest

from amqp_agents.clock import ManualClock
from amqp_agents.errors import HandlerTimeoutError, RequestTimeoutError
from amqp_agents.middleware import time_limit
from amqp_agents.outcome import Ack, Outcome
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol.properties import Properties
from tests.unit.stage import within

DELIVERY = Delivery(b"", Properties(), "agent.a")


async def test_what_ends_in_time_is_not_touched() -> None:
    clock = ManualClock(frozen=True)

    async def handle(_: Delivery) -> Outcome:
        await clock.sleep(4)
        return Ack()

    running = asyncio.ensure_future(time_limit("a", 5, clock)(handle)(DELIVERY))
    await clock.advance(4)
    assert await within(running) == Ack()
    assert clock._next_due() is None  # and no timer is left


async def test_what_takes_longer_is_cancelled_and_told_with_its_limit() -> None:
    clock, cancelled = ManualClock(frozen=True), []

    async def handle(_: Delivery) -> Outcome:
        try:
            await clock.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(clock.time())
            raise
        return Ack()

    started = clock.time()
    running = asyncio.ensure_future(time_limit("a", 5, clock)(handle)(DELIVERY))
    await clock.advance(5)
    with pytest.raises(HandlerTimeoutError, match="agent 'a' did not finish within 5 s"):
        await within(running)
    assert cancelled == [pytest.approx(started + 5)]


@pytest.mark.parametrize("own", [TimeoutError("own"), RequestTimeoutError("b", timeout_seconds=1)])
async def test_a_timeout_of_the_handlers_own_is_its_own_affair(own: TimeoutError) -> None:
    async def handle(_: Delivery) -> Outcome:
        raise own

    with pytest.raises(TimeoutError) as raised:
        await time_limit("a", 5, ManualClock(frozen=True))(handle)(DELIVERY)
    assert raised.value is own


async def test_a_cancellation_from_outside_stays_one() -> None:
    clock = ManualClock(frozen=True)

    async def handle(_: Delivery) -> Outcome:
        await clock.sleep(60)
        return Ack()

    running = asyncio.ensure_future(time_limit("a", 5, clock)(handle)(DELIVERY))
    await clock.advance(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
