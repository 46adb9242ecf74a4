"""The one shape everything on a message's way has: a handler of deliveries."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from amqp_agents.outcome import Outcome
from amqp_agents.protocol import (
    CLOCK_HEADER,
    AgentMessage,
    MessageType,
    RecipientMode,
    remaining_seconds,
)
from amqp_agents.protocol.properties import Properties

ATTEMPT_HEADER = "aa-attempt"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One arrival of one message at one queue.

    Brokers fill in bytes, properties and transport facts; `message` is set by the consumer
    once the body was read, and stays None for an agent that accepts foreign messages.
    """

    body: bytes
    properties: Properties
    queue: str
    exchange: str = ""
    routing_key: str = ""
    redelivered: bool = False
    delivery_count: int | None = None  # the quorum queue's own count of earlier deliveries
    message: AgentMessage | None = None
    unreadable: tuple[str, ...] = ()  # which properties stand as absent or mended, and why

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1; a header nobody of ours wrote counts as 1."""
        header = self.properties.headers.get(ATTEMPT_HEADER)
        return header if type(header) is int and 1 <= header <= 1_000_000 else 1

    def life_seconds(self, now: float) -> float | None:
        """Return how long the message still counts; 0.0 once expired, None for never.

        Age counts from its creation or its replay, never from its last hop.
        """
        if self.message is None:
            return None
        clock_ms = self.properties.headers.get(CLOCK_HEADER)
        return remaining_seconds(
            self.message, clock_ms=clock_ms if type(clock_ms) is int else None, now=now
        )

    @property
    def spread(self) -> bool:
        """Whether it came as an event or a broadcast, to whoever listens."""
        return self.message is not None and is_spread(self.message)


SPREAD = (MessageType.EVENT, MessageType.BROADCAST, MessageType.HEARTBEAT)


def is_spread(message: AgentMessage) -> bool:
    """Return whether the message goes to whoever listens, not to one agent.

    >>> is_spread(AgentMessage(sender="a", message_type="event", intent="ticket.closed"))
    True
    """
    broadcast = message.recipient_mode is RecipientMode.BROADCAST
    return message.message_type in SPREAD and (message.recipient is None or broadcast)


class Gate:
    """How many handlings of one agent may run at once: a middleware says it, the intake obeys.

    A limit of None is as many as the agent's concurrency, 0 is closed: nothing is consumed.
    """

    def __init__(self) -> None:
        self._limit: int | None = None
        self._followers: list[Callable[[], object]] = []

    @property
    def limit(self) -> int | None:
        """How many, as of now."""
        return self._limit

    @property
    def closed(self) -> bool:
        """Whether nothing may be taken on."""
        return self._limit == 0

    def set(self, limit: int | None) -> None:
        """Change the limit, and tell whoever follows."""
        if limit != self._limit:
            self._limit = limit
            for tell in self._followers:
                tell()

    def follow(self, tell: Callable[[], object]) -> None:
        """Call back after every change."""
        self._followers.append(tell)


Handler: TypeAlias = Callable[[Delivery], Awaitable[Outcome]]
Middleware: TypeAlias = Callable[[Handler], Handler]


def compose(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """Wrap `handler` so that the middleware listed first sees a delivery first."""
    for wrap in reversed(middleware):
        handler = wrap(handler)
    return handler
