"""The journal of one ticket: keeps what happens, tells it, and can be waited on."""

import asyncio
from collections.abc import Callable, Sequence

from amqp_agents.observability import Entry

Happened = Callable[[Sequence[Entry]], bool]


class TicketJournal:
    """Keeps the entries of one trace only: an inbox may hold what an earlier demo left."""

    def __init__(self, trace_id: str, tell: Callable[[Entry], None]) -> None:
        self.trace_id, self._tell = trace_id, tell
        self.entries: list[Entry] = []
        self._news = asyncio.Event()

    def record(self, entry: Entry) -> None:
        if entry.message.trace_id == self.trace_id:
            self.entries.append(entry)
            self._tell(entry)
            self._news.set()

    async def until(self, happened: Happened, *, limit_seconds: float) -> bool:
        """Return whether it happened within the limit."""
        try:
            async with asyncio.timeout(limit_seconds):
                while not happened(self.entries):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True
