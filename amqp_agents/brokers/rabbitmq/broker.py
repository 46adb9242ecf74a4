"""RabbitMQ as a `Broker`."""

import asyncio
from collections.abc import Callable, Sequence

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel
from pydantic import SecretStr

from amqp_agents.brokers.base import Browser, OnDelivery, Publishing, Replies, Subscription
from amqp_agents.brokers.management import Management
from amqp_agents.brokers.rabbitmq import decoders
from amqp_agents.brokers.rabbitmq.address import management_url, parse_address
from amqp_agents.brokers.rabbitmq.browsing import RabbitMQBrowser
from amqp_agents.brokers.rabbitmq.consuming import ConsumerOptions
from amqp_agents.brokers.rabbitmq.declaring import Declarer
from amqp_agents.brokers.rabbitmq.faults import quieten_library, reply_text
from amqp_agents.brokers.rabbitmq.leases import Tally
from amqp_agents.brokers.rabbitmq.link import Link
from amqp_agents.brokers.rabbitmq.publishing import Publisher
from amqp_agents.brokers.rabbitmq.replies import ReplyOpener
from amqp_agents.brokers.rabbitmq.session import CLOSE_SECONDS
from amqp_agents.brokers.rabbitmq.subscribing import RabbitMQSubscription
from amqp_agents.clock import Clock, SystemClock
from amqp_agents.config import Settings
from amqp_agents.errors import BrokerConnectionError, BrokerError, ConfigurationError
from amqp_agents.topology.model import Topology
from amqp_agents.topology.plan import Change

MAX_PREFETCH = 65_535  # 0 would mean no limit


class RabbitMQBroker:
    """A RabbitMQ vhost, over three connections: to publish, to consume, to administer.

    The connections are made again after every loss. `lost_settlements` counts deliveries
    whose ack could not be sent any more; RabbitMQ delivers those again.

    Raises: ConfigurationError for a URL that cannot be read.
    """

    def __init__(self, settings: Settings, *, name: str = "amqp_agents") -> None:
        decoders.install()
        quieten_library()
        self._settings, self._clock = settings, SystemClock()
        self._address = parse_address(settings.url)
        self._tally = Tally()
        self._publishing = Link(self._address, settings, name=f"{name}/publish")
        self._consuming = Link(self._address, settings, name=f"{name}/consume")
        self._admin = Link(self._address, settings, name=f"{name}/admin")
        self._publisher = Publisher(self._publishing, settings, user=self._address.user)
        self._opened: list[RabbitMQSubscription] = []
        self._connected = False
        self._policies_by_management: bool | None = None

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def version(self) -> tuple[int, int, int]:
        """The version of RabbitMQ. Raises: BrokerConnectionError before `connect`."""
        session = self._publishing.live or self._consuming.live or self._admin.live
        if session is None:
            raise BrokerConnectionError("not connected, so the version of RabbitMQ is unknown")
        return session.version

    @property
    def lost_settlements(self) -> int:
        """How many deliveries could not be settled, because their connection was gone."""
        return self._tally.lost_settlements

    @property
    def policies_by_management(self) -> bool | None:
        """Whether policies were written (True) or became arguments; None before a plan."""
        return self._policies_by_management

    async def connect(self, *, timeout_seconds: float) -> None:
        links = (self._publishing, self._consuming)
        for link in links:
            link.open()
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.gather(*(link.session() for link in links))
        except TimeoutError:
            late = next((link for link in links if link.live is None), self._publishing)
            failure = late.unreachable(timeout_seconds)
            await self.close()
            raise failure from None
        except BrokerConnectionError:  # refused: more attempts would hear the same
            await self.close()
            raise
        self._connected = True

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        await self._publisher.publish(publishing, timeout_seconds=timeout_seconds)

    async def consume(self, queue: str, on_delivery: OnDelivery, *, prefetch: int) -> Subscription:
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise ConfigurationError(f"prefetch must be 1 to {MAX_PREFETCH}, not {prefetch}")
        options = ConsumerOptions(queue=queue, prefetch=prefetch)
        subscription = RabbitMQSubscription(
            self._consuming, on_delivery, options, tally=self._tally
        )
        self._remember(subscription)
        return subscription

    async def open_replies(
        self, instance: str, on_reply: OnDelivery, *, direct: bool = False
    ) -> Replies:
        link = self._publishing if direct else self._consuming
        opener = ReplyOpener(link, self._publisher, on_reply, tally=self._tally)
        replies = await (opener.direct() if direct else opener.queue(instance))
        self._remember(replies.subscription)
        return replies

    async def browse(self, queue: str) -> Browser:
        session = await self._administer().session_soon()
        return RabbitMQBrowser(await session.open_channel(), queue, tally=self._tally)

    async def depth(self, queue: str) -> int | None:
        async def count(channel: AbstractChannel) -> int | None:
            return (await channel.queue_declare(queue, passive=True)).message_count

        try:
            return await self._administer().call(count)
        except library.ChannelNotFoundEntity:
            return None
        except library.AMQPChannelError as error:
            raise BrokerError(f"queue {queue!r} cannot be seen: {reply_text(error)}") from error

    async def plan(self, topology: Topology) -> Sequence[Change]:
        async with self._management() as management:
            declarer = Declarer(await self._administer().session_soon(), management)
            changes = await declarer.plan(topology)
            self._policies_by_management = declarer.policies_by_management
        return changes

    async def apply(
        self, topology: Topology, *, on_change: Callable[[Change], None] | None = None
    ) -> Sequence[Change]:
        async with self._management() as management:
            declarer = Declarer(await self._administer().session_soon(), management)
            changes = await declarer.apply(topology, on_change)
            self._policies_by_management = declarer.policies_by_management
        return changes

    async def close(self) -> None:
        self._connected = False
        opened, self._opened = self._opened, []
        if opened:
            closing = [asyncio.create_task(each.close()) for each in opened]
            _, late = await asyncio.wait(closing, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
        await asyncio.gather(self._publishing.close(), self._consuming.close(), self._admin.close())

    def _remember(self, subscription: RabbitMQSubscription) -> None:
        self._opened = [each for each in self._opened if not each.closed] + [subscription]

    def _administer(self) -> Link:
        if self._connected:
            self._admin.open()
        return self._admin

    def _management(self) -> Management:
        url = self._settings.management_url or SecretStr(management_url(self._address))
        return Management(
            url,
            user=self._address.user or "guest",
            password=self._address.password,
            vhost=self._address.vhost,
        )
