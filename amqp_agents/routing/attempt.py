"""One attempt, reported to its breakers however it ends."""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from amqp_agents.routing.breakers import Breakers, Moved, Passage

OnMoved: TypeAlias = Callable[[tuple[Moved, ...]], object]


class Attempt:
    """A block that asks the breakers of `name` first and reports when it is left.

    An error that leaves the block is reported, a cancellation counts for nobody. Set `error`
    where one is returned instead of raised, `told = False` where it ends without a verdict.
    `on_moved` is called after each step, also with nothing.
    """

    def __init__(
        self, breakers: Breakers, name: str, *, time: Callable[[], float], on_moved: OnMoved
    ) -> None:
        self._breakers, self._name = breakers, name
        self._time, self._on_moved = time, on_moved
        self._passage = Passage(name, {})
        self.error: BaseException | None = None
        self.told = True

    @property
    def granted(self) -> bool:
        """Whether it may be made."""
        return self._passage.granted

    @property
    def retry_after_seconds(self) -> float:
        """How long to wait before asking again, if it may not."""
        return self._passage.retry_after_seconds

    def __enter__(self) -> Self:
        self._passage = self._breakers.acquire(self._name, self._time())
        self._on_moved(self._passage.moved)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        error, now = error or self.error, self._time()
        if error is None and not self.told:
            moved = self._breakers.abandon(self._passage, now)
        else:
            moved = self._breakers.report(self._passage, now, error=error)
        self._on_moved(moved)
