"""The service of the story that is down when it is needed."""

from typing import Any

from amqp_agents.errors import DependencyFailedError


class CompensationHistory:
    """Knows what a customer was given before; fails once for each ticket."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def of(self, ticket: str) -> dict[str, Any]:
        """Return what was granted before. Raises: DependencyFailedError the first time."""
        if ticket not in self._asked:
            self._asked.add(ticket)
            raise DependencyFailedError("compensation history service is not reachable")
        return {"granted_cents": 2000, "on": "2026-06-20"}
