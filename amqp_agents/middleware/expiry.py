"""Nobody works for a caller who left: expired deliveries are given up, on every arrival."""

from collections.abc import Callable

from amqp_agents.clock import Clock
from amqp_agents.errors import ExpiredMessageError
from amqp_agents.outcome import Ack, Outcome
from amqp_agents.pipeline import Delivery, Handler, Middleware


def expiry(clock: Clock, on_stale: Callable[[Delivery, str], None]) -> Middleware:
    """Dead-letter a message past its ttl or its requester's deadline; drop a stale broadcast.

    Age counts from the message's creation (or its replay), never from its last hop.
    """

    def wrap(handler: Handler) -> Handler:
        async def within_life(delivery: Delivery) -> Outcome:
            if delivery.life_seconds(clock.time()) != 0:
                return await handler(delivery)
            if delivery.announced and delivery.attempt == 1:
                on_stale(delivery, "a stale broadcast")
                return Ack(ignored=True)
            raise ExpiredMessageError("expired before it was handled")

        return within_life

    return wrap
