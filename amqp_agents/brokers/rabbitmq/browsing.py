"""Looking into a queue without consuming it."""

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel

from amqp_agents.brokers.base import Lease
from amqp_agents.brokers.rabbitmq.faults import APPLY_REMEDY, answered, reply_text
from amqp_agents.brokers.rabbitmq.leases import Holding, Tally
from amqp_agents.brokers.rabbitmq.wire import incoming_delivery
from amqp_agents.errors import BrokerError, TopologyMissingError


class RabbitMQBrowser:
    """Gets messages one by one on a channel of its own, and settles only what it is told to.

    Closing the channel puts the others back. A nack would count them as failed deliveries,
    and a quorum queue at its delivery limit would throw them away.
    """

    def __init__(self, channel: AbstractChannel, queue: str, *, tally: Tally) -> None:
        self._holding, self._queue = Holding(channel, tally), queue

    async def get(self) -> Lease | None:
        try:
            message = await answered(self._holding.channel.basic_get(self._queue))
        except library.ChannelNotFoundEntity:
            raise TopologyMissingError([f"queue {self._queue}"], remedy=APPLY_REMEDY) from None
        except library.AMQPChannelError as error:
            raise BrokerError(
                f"queue {self._queue!r} cannot be browsed: {reply_text(error)}"
            ) from error
        if message.delivery_tag is None:
            return None
        delivery = incoming_delivery(message, self._queue)
        return self._holding.lease(delivery, message.delivery_tag)

    async def close(self) -> None:
        await self._holding.close()
