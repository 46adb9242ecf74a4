"""Time limit of one handling."""

from amqp_agents.clock import Clock
from amqp_agents.errors import HandlerTimeoutError
from amqp_agents.outcome import Outcome
from amqp_agents.pipeline import Delivery, Handler, Middleware


def time_limit(agent: str, limit_seconds: float, clock: Clock) -> Middleware:
    """Cancel a handling that takes longer than `limit_seconds`; it may be tried again.

    Keep the limit below the broker's consumer timeout (30 minutes by default), or RabbitMQ
    takes the delivery back first.
    Source: RabbitMQ documentation, "Consumers", delivery acknowledgement timeout.
    """

    def wrap(handler: Handler) -> Handler:
        async def within_limit(delivery: Delivery) -> Outcome:
            limit = clock.timeout(limit_seconds)
            try:
                async with limit:
                    return await handler(delivery)
            except TimeoutError as error:
                # A TimeoutError of the handler's own is its own affair.
                if limit.expired():
                    raise HandlerTimeoutError(agent, limit_seconds=limit_seconds) from error
                raise

        return within_limit

    return wrap
