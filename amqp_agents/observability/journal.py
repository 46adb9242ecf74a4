"""The journal: which messages were sent and received, in order, per trace."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from amqp_agents.protocol import AgentMessage


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to one message.

    `what` is "sent" or "unroutable", or the outcome of a handling: "handled", "retried",
    "dead-lettered", "released", "ignored"; `by` is who did it.
    """

    at: float
    what: str
    by: str
    message: AgentMessage
    note: str = ""


class Journal(Protocol):
    """Keeps entries; must not block and must not raise."""

    def record(self, entry: Entry) -> None: ...


class MemoryJournal:
    """Keeps the last `capacity` entries of this process."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._entries: deque[Entry] = deque(maxlen=capacity)

    def record(self, entry: Entry) -> None:
        self._entries.append(entry)

    def chain(self, trace_id: str) -> Sequence[Entry]:
        """Return the entries of one trace, oldest first."""
        found = [entry for entry in self._entries if entry.message.trace_id == trace_id]
        return sorted(found, key=lambda entry: entry.at)
