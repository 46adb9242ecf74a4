"""Messages that are delivered again and again without ever being settled."""

from amqp_agents.errors import CapacityExceededError
from amqp_agents.outcome import DeadLetter, Outcome
from amqp_agents.pipeline import Delivery, Handler, Middleware


def poison(max_deliveries: int) -> Middleware:
    """Give up a message that came `max_deliveries` times: whoever took it, died of it.

    Counts the quorum queue's own `x-delivery-count`; a first delivery is never affected.
    Source: RabbitMQ documentation, "Quorum Queues", poison message handling.
    """

    def wrap(handler: Handler) -> Handler:
        async def bounded(delivery: Delivery) -> Outcome:
            earlier = delivery.delivery_count or 0
            if delivery.redelivered and earlier >= max_deliveries:
                times = f"delivered {earlier} times without settlement"
                return DeadLetter(CapacityExceededError(times))
            return await handler(delivery)

        return bounded

    return wrap
