"""One timer for everything that is due in one place."""

from collections.abc import Callable

from amqp_agents.clock import Clock, Timer


class Alarm:
    """Calls back once, at the earliest time asked for since it last did."""

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock, self._callback = clock, callback
        self._at: float | None = None
        self._timer: Timer | None = None

    def ask(self, at: float | None) -> None:
        """Call back at that time (seconds since the epoch) or before; None asks nothing."""
        if at is None or (self._at is not None and self._at <= at):
            return
        self.cancel()
        self._at = at
        self._timer = self._clock.call_later(max(0.0, at - self._clock.time()), self._ring)

    def cancel(self) -> None:
        """Ask for nothing any more."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._at = None
        self._callback()
