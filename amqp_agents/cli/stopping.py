"""SIGTERM and SIGINT: the first asks to drain, the second to end at once; nothing hangs.

A thread watches the time, because what hangs may be the event loop itself: a handler that
blocks it, or a handler's thread that Python would wait for at the end.
"""

import asyncio
import os
import select
import signal
import threading
from types import FrameType

from amqp_agents.cli.target import Stopped

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AFTER_GRACE_SECONDS = 1.5
AT_ONCE_SECONDS = 1.0


class Stopping:
    """What signals asked for so far; `until` and `at_once` are set by the first and second.

    Before an event loop is attached nothing runs that could be drained, so the first signal
    ends the process, with exit code 0. `after_grace_seconds` bounds what follows the grace.
    """

    def __init__(
        self, grace_seconds: float, *, after_grace_seconds: float = AFTER_GRACE_SECONDS
    ) -> None:
        self.until, self.at_once = asyncio.Event(), asyncio.Event()
        self._limit_seconds = grace_seconds + after_grace_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._count = 0
        self._woken, self._wake = os.pipe()

    def install(self) -> None:
        """Take the signals over, and start to watch the time."""
        threading.Thread(target=self._watch, name="stopping", daemon=True).start()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def attach(self) -> None:
        """From now on signals reach the running event loop."""
        self._loop = asyncio.get_running_loop()
        for event in (self.until, self.at_once)[: self._count]:
            event.set()

    def watch_parent(self, descriptor: int = 0) -> None:
        """Stop when the other end of the descriptor is closed: the parent is gone."""

        def wait() -> None:
            while os.read(descriptor, 1024):
                pass
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=wait, name="parent", daemon=True).start()

    @property
    def hurried(self) -> bool:
        """Whether it was told to end at once."""
        return self._count > 1

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        os.write(self._wake, b"!")
        if self._loop is None:
            raise Stopped(0)
        event = self.until if self._count == 1 else self.at_once
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)

    def _watch(self) -> None:
        os.read(self._woken, 1)
        if not self._signalled(self._limit_seconds):
            _leave(0, "the grace period is over: what was not finished goes back to its queue")
        if not self._signalled(AT_ONCE_SECONDS):
            _leave(1, "ended at once: what was not finished goes back to its queue")
        _leave(1, "ended at once")

    def _signalled(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._woken], [], [], seconds)
        return bool(ready) and bool(os.read(self._woken, 1))


def _leave(code: int, why: str) -> None:
    # No logging, no flush: another thread may hold any lock.
    os.write(2, f"{why}\n".encode())
    os._exit(code)
