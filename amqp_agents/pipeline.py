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
    def announced(self) -> bool:
        """Whether it is a broadcast or a heartbeat, which mean nothing once they are stale."""
        kinds = (MessageType.BROADCAST, MessageType.HEARTBEAT)
        return self.message is not None and self.message.message_type in kinds


SPREAD = (MessageType.EVENT, MessageType.BROADCAST, MessageType.HEARTBEAT)


def is_spread(message: AgentMessage) -> bool:
    """Return whether the message goes to whoever listens, not to one agent.

    >>> is_spread(AgentMessage(sender="a", message_type="event", intent="ticket.closed"))
    True
    """
    broadcast = message.recipient_mode is RecipientMode.BROADCAST
    return message.message_type in SPREAD and (message.recipient is None or broadcast)


Handler: TypeAlias = Callable[[Delivery], Awaitable[Outcome]]
Middleware: TypeAlias = Callable[[Handler], Handler]


def compose(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """Wrap `handler` so that the middleware listed first sees a delivery first."""
    for wrap in reversed(middleware):
        handler = wrap(handler)
    return handler
