"""What a broker must do for us; RabbitMQ and the memory broker both do it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from amqp_agents.clock import Clock
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.model import Topology
from amqp_agents.topology.plan import Change


@dataclass(frozen=True, slots=True)
class Publishing:
    """One message on its way to an exchange.

    `mandatory`: a message no queue takes is an error instead of silence.
    """

    exchange: str
    routing_key: str
    body: bytes
    properties: Properties
    mandatory: bool = True


class Outlet(Protocol):
    """Something that publishes: a broker, or the channel of a direct reply-to."""

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        """Publish once; as `Broker.publish`."""


class Lease(Protocol):
    """A delivery that is ours until it is settled, exactly once.

    Settling never raises for a lost connection: the broker delivers the message again,
    and the call answers False.
    """

    @property
    def delivery(self) -> Delivery: ...

    @property
    def lost(self) -> bool:
        """Whether the way to settle it is gone; the broker delivers the message again."""

    async def ack(self) -> bool:
        """Done: the broker forgets the message."""

    async def reject(self) -> bool:
        """Failed: the queue's own dead-letter exchange takes it."""

    async def release(self) -> bool:
        """Not finished here: back to the queue, for any consumer."""


OnDelivery: TypeAlias = Callable[[Lease], None]


class SubscriptionState(StrEnum):
    """What a subscription is doing; `failing` has a reason, and keeps trying."""

    STARTING = "starting"
    UP = "up"
    FAILING = "failing"
    CANCELLED = "cancelled"


class Subscription(Protocol):
    """Deliveries of one queue, restored by itself after every loss of the connection."""

    @property
    def state(self) -> SubscriptionState: ...

    @property
    def failure(self) -> str | None:
        """Why the state is `failing`, in one sentence."""

    async def ready(self, timeout_seconds: float) -> None:
        """Return once deliveries can flow. Raises: BrokerError with the reason otherwise."""

    async def cancel(self) -> None:
        """Stop new deliveries; those handed out can still be settled."""

    async def close(self) -> None:
        """Cancel, and hand everything unsettled back to the queue."""


class Replies(Protocol):
    """Where the answers to the requests of one client instance arrive."""

    @property
    def address(self) -> str:
        """What requests carry as reply_to."""

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        """Publish a request whose answer comes here; as `Broker.publish`."""

    async def close(self) -> None: ...


class Browser(Protocol):
    """Reads a queue message by message without consuming it.

    Whatever was not acknowledged is back in the queue once the browser is closed, so
    nothing is lost by looking.
    """

    async def get(self) -> Lease | None:
        """Return the next message, or None at the end of the queue."""

    async def close(self) -> None: ...


class Broker(Protocol):
    """Publish with confirms, consume with a bound on what is unsettled."""

    @property
    def clock(self) -> Clock: ...

    async def connect(self, *, timeout_seconds: float) -> None:
        """Return once connected. Raises: BrokerConnectionError that names the mend."""

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        """Return once the broker has confirmed the message, in one attempt.

        Waits for a lost connection to come back, within the limit.

        Raises: PublishRejectedError, UnroutableMessageError, OutcomeUnknownError (sent, no
            answer in time), BrokerConnectionError (nothing was sent), InvalidPayloadError
            (a value AMQP cannot carry).
        """

    async def consume(self, queue: str, on_delivery: OnDelivery, *, prefetch: int) -> Subscription:
        """Start a subscription; deliveries are handed over, at most `prefetch` unsettled."""

    async def open_replies(
        self, instance: str, on_reply: OnDelivery, *, direct: bool = False
    ) -> Replies:
        """Make the reply queue of one client instance and consume it.

        `direct` uses the broker's direct reply-to: faster, but an answer is lost when the
        connection is.
        """

    async def browse(self, queue: str) -> Browser: ...

    async def depth(self, queue: str) -> int | None:
        """Return how many messages wait in the queue, or None if there is no such queue."""

    async def plan(self, topology: Topology) -> Sequence[Change]:
        """Return what differs between the broker and `topology`; changes nothing."""

    async def apply(
        self, topology: Topology, *, on_change: Callable[[Change], None] | None = None
    ) -> Sequence[Change]:
        """Create what is missing and verify it by reading back; a conflict stops it before that.

        Raises: TopologyConflictError if something exists, declared differently.
        """

    async def close(self) -> None:
        """End every connection; idempotent."""
