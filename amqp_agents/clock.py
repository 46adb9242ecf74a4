"""Time: what the runtime asks for now, waits on, and measures limits with.

The memory broker runs on a `ManualClock`, so that a test can move an hour in a
moment; everything that compares, waits or limits takes the clock of its broker.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Protocol, Self


class Timer(Protocol):
    """A call that is due later, unless cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the runtime takes the time from."""

    def time(self) -> float:
        """Return seconds since the epoch (UTC)."""

    def monotonic(self) -> float:
        """Return seconds since some moment; it never goes back, so limits are measured with it."""

    @property
    def ahead_seconds(self) -> float:
        """How far it is ahead of the machine's own clock."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once `seconds` have passed."""

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""

    def timeout(self, seconds: float | None) -> "Expiry":
        """Bound the block: `TimeoutError` once `seconds` have passed; None never expires."""

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: at once where the clock can be moved, else by waiting."""


class Expiry:
    """A time limit around a block, on any clock.

    `expired()` tells its TimeoutError from one of the block's own.
    """

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock, self._seconds = clock, seconds
        self._limit = asyncio.timeout(None)
        self._timer: Timer | None = None

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        if self._seconds is not None:
            self._timer = self._clock.call_later(max(0.0, self._seconds), self._expire)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        """Return whether this limit ended the block."""
        return self._limit.expired()

    def _expire(self) -> None:
        # The zero point of the loop's clock lies in the past: the block is cancelled at once.
        self._limit.reschedule(0)


class SystemClock:
    """The real time of the machine and of the running event loop."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    @property
    def ahead_seconds(self) -> float:
        return 0.0

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> Expiry:
        return Expiry(self, seconds)

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """Real time plus what it was advanced by, so that a test need not wait.

    Time also passes by itself; `frozen=True` stops that, and only `advance` moves it.
    """

    def __init__(self, *, frozen: bool = False) -> None:
        self._frozen_at = time.time() if frozen else None
        self._offset = 0.0
        self._order = count()
        self._due: list[tuple[float, int, _ManualTimer]] = []

    def time(self) -> float:
        return (time.time() if self._frozen_at is None else self._frozen_at) + self._offset

    def monotonic(self) -> float:
        return (time.monotonic() if self._frozen_at is None else 0.0) + self._offset

    @property
    def ahead_seconds(self) -> float:
        return self.time() - time.time() if self._frozen_at is not None else self._offset

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        self._next_due()  # drops what was cancelled, so that the heap does not grow
        timer = _ManualTimer(callback)
        heapq.heappush(self._due, (self.time() + seconds, next(self._order), timer))
        if self._frozen_at is None:
            timer.real = asyncio.get_running_loop().call_later(seconds, timer.fire)
        return timer

    async def sleep(self, seconds: float) -> None:
        passed = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: _resolve(passed))
        try:
            await passed
        finally:
            timer.cancel()

    def timeout(self, seconds: float | None) -> Expiry:
        return Expiry(self, seconds)

    async def advance(self, seconds: float) -> None:
        """Move time forward, stopping at each timer on the way so that effects come in order."""
        target = self._offset + seconds
        await self._settle()
        while (due := self._next_due()) is not None and due <= self.time() - self._offset + target:
            self._offset += max(0.0, due - self.time())
            heapq.heappop(self._due)[2].fire()
            await self._settle()
        self._offset = max(self._offset, target)
        await self._settle()

    def _next_due(self) -> float | None:
        while self._due and self._due[0][2].done:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    @staticmethod
    async def _settle() -> None:
        # Enough turns of the loop for a publish to reach a handler and its reply to come back.
        for _ in range(50):
            await asyncio.sleep(0)


def _resolve(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class _ManualTimer:
    """A due call of a `ManualClock`; fires once, by time passing or by `advance`."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.done = False
        self.real: asyncio.TimerHandle | None = None

    def fire(self) -> None:
        if not self.done:
            self.cancel()
            self.callback()

    def cancel(self) -> None:
        self.done = True
        if self.real is not None:
            self.real.cancel()
