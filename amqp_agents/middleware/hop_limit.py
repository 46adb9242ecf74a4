"""Agents that ask each other in a circle."""

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.outcome import Outcome
from amqp_agents.pipeline import Delivery, Handler, Middleware


def hop_limit(max_depth: int, header: str) -> Middleware:
    """Refuse a message that is more than `max_depth` hops from the first of its chain."""

    def wrap(handler: Handler) -> Handler:
        async def shallow(delivery: Delivery) -> Outcome:
            depth = delivery.properties.headers.get(header)
            if type(depth) is int and depth > max_depth:
                raise InvalidPayloadError(
                    f"{depth} hops deep, at most {max_depth}: do agents ask each other in a circle?"
                )
            return await handler(delivery)

        return shallow

    return wrap
