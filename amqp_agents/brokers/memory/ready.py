"""The messages of a queue that wait to be handed out, in the order in which they go."""

from bisect import insort
from collections import deque
from collections.abc import Iterator

from amqp_agents.brokers.memory.messages import Message


class Ready:
    """First what came back, then by priority, then by age."""

    def __init__(self) -> None:
        self.bytes = 0
        self._length = 0
        self._returned: deque[Message] = deque()
        self._new: dict[int, deque[Message]] = {}  # by priority, the highest first

    def __len__(self) -> int:
        return self._length

    def add(self, message: Message, priority: int) -> None:
        """Add a new message behind those of its priority."""
        if priority not in self._new:
            self._new[priority] = deque()
            self._new = dict(sorted(self._new.items(), reverse=True))
        self._new[priority].append(message)
        self._count(message, 1)

    def give_back(self, message: Message, *, in_place: bool) -> None:
        """Add a message that was handed out, ahead of all that were not.

        `in_place` puts it where it was; else it goes behind those that came back before.
        """
        if in_place:
            insort(self._returned, message, key=lambda other: other.position)
        else:
            self._returned.append(message)
        self._count(message, 1)

    def take(self) -> Message | None:
        """Remove and return the next message."""
        for line in self._lines():
            return self._first_of(line)
        return None

    def take_expired(self, now: float) -> Iterator[Message]:
        """Remove what expired at the head of each line.

        A message behind one that still lives stays, however old it is.
        """
        for line in self._lines():
            while line and (due := line[0].due) is not None and due <= now:
                yield self._first_of(line)

    def next_due(self) -> float | None:
        """Return when the next head of a line expires, or None if none does."""
        dues = (line[0].due for line in self._lines())
        return min((due for due in dues if due is not None), default=None)

    def _lines(self) -> Iterator[deque[Message]]:
        return (line for line in (self._returned, *self._new.values()) if line)

    def _first_of(self, line: deque[Message]) -> Message:
        message = line.popleft()
        self._count(message, -1)
        return message

    def _count(self, message: Message, step: int) -> None:
        self._length += step
        self.bytes += step * len(message.body)
