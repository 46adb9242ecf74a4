"""Time that is moved, time that passes, and limits on both."""

import asyncio
import time
from functools import partial

import pytest

from amqp_agents.clock import Clock, ManualClock, SystemClock

LIMIT_SECONDS = 5.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(frozen=True)


def test_a_frozen_clock_stands_still_until_it_is_moved(clock: ManualClock) -> None:
    start = clock.time()
    assert abs(start - time.time()) < LIMIT_SECONDS
    assert clock.time() == start


async def test_a_moved_clock_goes_on_from_there() -> None:
    clock = ManualClock()
    start = clock.time()
    await clock.advance(3600)
    assert 3600 <= clock.time() - start < 3600 + LIMIT_SECONDS
    before = clock.time()
    await asyncio.sleep(0.001)
    assert clock.time() > before


async def test_limits_are_measured_with_a_time_that_only_advances(clock: ManualClock) -> None:
    start = clock.monotonic()
    await asyncio.sleep(0.001)
    assert clock.monotonic() == start
    await clock.advance(3600)
    assert clock.monotonic() - start == pytest.approx(3600)
    moving = ManualClock()
    before = moving.monotonic()
    await moving.advance(3600)
    assert 3600 <= moving.monotonic() - before < 3600 + LIMIT_SECONDS


@pytest.mark.parametrize("kind", [SystemClock, ManualClock])
def test_a_wall_clock_set_back_does_not_move_the_measure(
    monkeypatch: pytest.MonkeyPatch, kind: type[SystemClock | ManualClock]
) -> None:
    clock = kind()
    now, before = clock.time(), clock.monotonic()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert clock.time() < now - 3000
    assert before <= clock.monotonic() < before + LIMIT_SECONDS


async def test_timers_ring_in_the_order_of_their_times_at_their_times(clock: ManualClock) -> None:
    start = clock.time()
    rang: list[tuple[float, float]] = []

    def ring(due: float) -> None:
        rang.append((due, clock.time() - start))

    for seconds in (5.0, 1.0, 3.0, 1.0):
        clock.call_later(seconds, partial(ring, seconds))
    await clock.advance(4)
    assert [due for due, _ in rang] == [1.0, 1.0, 3.0]
    assert [at for _, at in rang] == pytest.approx([1.0, 1.0, 3.0], abs=1e-5)
    assert clock.time() - start == pytest.approx(4, abs=1e-5)
    await clock.advance(1)
    assert rang[-1][0] == 5.0


async def test_a_timer_set_by_a_timer_rings_in_the_same_advance(clock: ManualClock) -> None:
    rang: list[int] = []

    def again(left: int) -> None:
        rang.append(left)
        if left:
            clock.call_later(1.0, lambda: again(left - 1))

    clock.call_later(1.0, lambda: again(5))
    await clock.advance(4)
    assert rang == [5, 4, 3, 2]
    await clock.advance(10)
    assert rang == [5, 4, 3, 2, 1, 0]


async def test_what_a_timer_wakes_has_run_before_the_next_timer_rings(clock: ManualClock) -> None:
    order: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        order.append(f"{name} awake")
        await asyncio.sleep(0)
        order.append(f"{name} done")

    tasks = [asyncio.ensure_future(sleeper("late", 2)), asyncio.ensure_future(sleeper("early", 1))]
    await clock.advance(3)
    assert order == ["early awake", "early done", "late awake", "late done"]
    await asyncio.gather(*tasks)


async def test_a_cancelled_timer_does_not_ring(clock: ManualClock) -> None:
    rang: list[str] = []
    timer = clock.call_later(1, lambda: rang.append("cancelled"))
    clock.call_later(1, lambda: rang.append("kept"))
    timer.cancel()
    timer.cancel()
    await clock.advance(2)
    timer.cancel()
    assert rang == ["kept"]


async def test_a_cancelled_sleep_leaves_no_timer_behind(clock: ManualClock) -> None:
    sleeping = asyncio.ensure_future(clock.sleep(60))
    await asyncio.sleep(0)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    await clock.advance(120)


async def test_a_timer_rings_once_though_both_times_pass() -> None:
    clock, rang = ManualClock(), asyncio.Event()
    count: list[int] = []

    def ring() -> None:
        count.append(1)
        rang.set()

    clock.call_later(0.02, ring)
    async with asyncio.timeout(LIMIT_SECONDS):
        await rang.wait()
    await clock.advance(1)
    assert count == [1]


async def test_real_time_alone_is_enough_unless_the_clock_is_frozen() -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        await ManualClock().sleep(0.01)
    frozen = ManualClock(frozen=True)
    asleep = asyncio.ensure_future(frozen.sleep(0.01))
    await asyncio.wait({asleep}, timeout=0.05)
    assert not asleep.done()
    await frozen.advance(0.01)
    await asleep


async def test_an_advance_of_nothing_lets_others_run(clock: ManualClock) -> None:
    task = asyncio.ensure_future(asyncio.sleep(0))
    await clock.advance(0)
    assert task.done()


async def test_a_limit_ends_its_block_when_its_time_has_passed(clock: ManualClock) -> None:
    async def wait_in_vain() -> None:
        async with clock.timeout(10):
            await asyncio.get_running_loop().create_future()

    waiting = asyncio.ensure_future(wait_in_vain())
    await clock.advance(9.9)
    assert not waiting.done()
    await clock.advance(0.2)
    with pytest.raises(TimeoutError):
        await waiting


async def test_a_limit_is_told_from_a_timeout_of_the_block_itself(clock: ManualClock) -> None:
    limit = clock.timeout(10)
    with pytest.raises(TimeoutError):
        async with limit as expiry:
            raise TimeoutError
    assert not expiry.expired()

    async def wait_in_vain() -> bool:
        try:
            async with clock.timeout(10) as expiry:
                await clock.sleep(60)
        except TimeoutError:
            return expiry.expired()
        return False

    waiting = asyncio.ensure_future(wait_in_vain())
    await clock.advance(11)
    assert await waiting


async def test_a_block_that_ended_in_time_is_not_limited_later(clock: ManualClock) -> None:
    async with clock.timeout(1):
        pass
    await clock.advance(2)
    await asyncio.sleep(0)


async def test_no_limit_never_ends_a_block(clock: ManualClock) -> None:
    async def sleep_within() -> str:
        async with clock.timeout(None) as expiry:
            await clock.sleep(10**9)
        return "expired" if expiry.expired() else "slept"

    sleeping = asyncio.ensure_future(sleep_within())
    await clock.advance(10**9)
    assert await sleeping == "slept"


async def test_a_limit_that_is_over_already_ends_the_block_at_its_first_pause(
    clock: ManualClock,
) -> None:
    for seconds in (0, -5):
        waiting = asyncio.ensure_future(_bounded_sleep(clock, seconds))
        await clock.advance(0)
        with pytest.raises(TimeoutError):
            await waiting


async def test_a_cancelled_block_is_cancelled_and_not_expired(clock: ManualClock) -> None:
    waiting = asyncio.ensure_future(_bounded_sleep(clock, 10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _bounded_sleep(clock: Clock, seconds: float) -> None:
    async with clock.timeout(seconds):
        await clock.sleep(3600)


async def test_the_system_clock_waits_really() -> None:
    clock = SystemClock()
    assert abs(clock.time() - time.time()) < LIMIT_SECONDS
    rang = asyncio.Event()
    start = time.monotonic()
    clock.call_later(0.01, rang.set)
    clock.call_later(60, rang.set).cancel()
    async with asyncio.timeout(LIMIT_SECONDS):
        await rang.wait()
    await clock.sleep(0.01)
    await clock.advance(0.01)
    with pytest.raises(TimeoutError):
        await _bounded_sleep(clock, 0.01)
    assert time.monotonic() - start >= 0.03
