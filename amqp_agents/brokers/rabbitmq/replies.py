"""Where the answers to the requests of one client instance arrive."""

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel

from amqp_agents.brokers.base import OnDelivery, Publishing
from amqp_agents.brokers.rabbitmq.channels import ChannelSet, PublishChannel
from amqp_agents.brokers.rabbitmq.consuming import ConsumerOptions
from amqp_agents.brokers.rabbitmq.faults import APPLY_REMEDY, ConnectionLost, reply_text
from amqp_agents.brokers.rabbitmq.leases import Tally
from amqp_agents.brokers.rabbitmq.link import Link
from amqp_agents.brokers.rabbitmq.publishing import ChannelSource, Publisher
from amqp_agents.brokers.rabbitmq.subscribing import RabbitMQSubscription
from amqp_agents.errors import BrokerError, TopologyMissingError
from amqp_agents.topology import names
from amqp_agents.topology.layout import reply_topology

PREFETCH = 200
OPEN_SECONDS = 30.0


class RabbitMQReplies:
    """Replies by a queue of the instance's own, or over the very channel that asks."""

    def __init__(
        self, address: str, subscription: RabbitMQSubscription, publisher: Publisher
    ) -> None:
        self.subscription = subscription
        self._address, self._publisher = address, publisher
        self._asking: PublishChannel | None = None
        direct = address == names.DIRECT_REPLY_TO
        self._channel_of: ChannelSource = self._asking_channel if direct else self._any_channel

    @property
    def address(self) -> str:
        return self._address

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        await self._publisher.publish(
            publishing, timeout_seconds=timeout_seconds, channel_of=self._channel_of
        )

    async def close(self) -> None:
        await self.subscription.close()

    async def _any_channel(self, channels: ChannelSet) -> PublishChannel:
        # Asked before the new connection consumes, the answer would go to the old one: the
        # broker holds a half-open connection for its own until heartbeats are missed.
        await self.subscription.restored()
        return await channels.next()

    async def _asking_channel(self, _: ChannelSet) -> PublishChannel:
        await self.subscription.restored()
        channel = self.subscription.channel
        if channel is None or channel.is_closed:
            raise ConnectionLost("the channel of the replies was lost")
        if self._asking is None or self._asking.channel is not channel:
            self._asking = PublishChannel(channel)
        return self._asking


class ReplyOpener:
    """Opens the replies of one client instance on a link."""

    def __init__(
        self, link: Link, publisher: Publisher, on_reply: OnDelivery, *, tally: Tally
    ) -> None:
        self._link, self._publisher = link, publisher
        self._on_reply, self._tally = on_reply, tally

    async def direct(self) -> RabbitMQReplies:
        """Consume direct reply-to on a publishing channel, again at every connection."""
        options = ConsumerOptions(
            queue=names.DIRECT_REPLY_TO, prefetch=PREFETCH, no_ack=True, confirms=True
        )
        return await self._open(names.DIRECT_REPLY_TO, options)

    async def queue(self, instance: str) -> RabbitMQReplies:
        """Declare the instance's reply queue, again at every connection, and consume it.

        Raises: TopologyMissingError if the exchange replies come through does not exist.
        """
        topology = reply_topology(instance)
        (queue,) = topology.queues

        async def prepare(channel: AbstractChannel) -> None:
            await channel.queue_declare(queue.name, durable=True, arguments=queue.arguments)
            try:
                for binding in topology.bindings:
                    await channel.queue_bind(queue.name, binding.source, binding.routing_key)
            except library.ChannelNotFoundEntity:
                missing = f"exchange {names.REPLY}"
                raise TopologyMissingError([missing], remedy=APPLY_REMEDY) from None

        try:
            await self._link.call(prepare)
        except library.AMQPChannelError as error:
            raise BrokerError(
                f"reply queue {queue.name!r} cannot be made: {reply_text(error)}"
            ) from error
        options = ConsumerOptions(
            queue=queue.name, prefetch=PREFETCH, prioritised=True, prepare=prepare
        )
        return await self._open(queue.name, options)

    async def _open(self, address: str, options: ConsumerOptions) -> RabbitMQReplies:
        subscription = RabbitMQSubscription(self._link, self._on_reply, options, tally=self._tally)
        try:
            await subscription.ready(OPEN_SECONDS)
        except BaseException:
            await subscription.close()
            raise
        return RabbitMQReplies(address, subscription, self._publisher)
