"""Where the answers to the requests of one client instance arrive."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias
from uuid import uuid4

from amqp_agents.brokers.base import OnDelivery, Publishing
from amqp_agents.brokers.memory.consuming import MemorySubscription
from amqp_agents.brokers.memory.messages import Message, delivery_of
from amqp_agents.brokers.memory.vhost import Vhost
from amqp_agents.pipeline import Delivery
from amqp_agents.topology.names import DIRECT_REPLY_TO, reply_queue

Publish: TypeAlias = Callable[[Publishing, float], Awaitable[None]]


class QueueReplies:
    """Replies by a queue of the instance's own: it outlives the connection."""

    def __init__(self, instance: str, subscription: MemorySubscription, publish: Publish) -> None:
        self._address = reply_queue(instance)
        self._subscription, self._publish = subscription, publish

    @property
    def address(self) -> str:
        return self._address

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        await self._publish(publishing, timeout_seconds)

    async def close(self) -> None:
        await self._subscription.close()


class DirectLease:
    """A delivery that the broker forgot when it handed it over."""

    lost = False

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    async def ack(self) -> bool:
        return True

    async def reject(self) -> bool:
        return True

    async def release(self) -> bool:
        return False


class DirectReplies:
    """Replies straight to the connection: an address for as long as it lasts."""

    def __init__(self, vhost: Vhost, on_reply: OnDelivery, publish: Publish) -> None:
        self._vhost, self._on_reply, self._publish = vhost, on_reply, publish
        self._closed = False
        self._token = ""
        self.restore()

    @property
    def address(self) -> str:
        return DIRECT_REPLY_TO

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        properties = publishing.properties
        if properties.reply_to == DIRECT_REPLY_TO:  # the broker puts the real address there
            publishing = replace(publishing, properties=replace(properties, reply_to=self._token))
        await self._publish(publishing, timeout_seconds)

    async def close(self) -> None:
        self._closed = True
        self.lose()

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to lose."""
        return self._closed

    def lose(self, failure: str = "") -> None:
        """Lose the connection: answers to the address vanish."""
        self._vhost.direct_replies.pop(self._token, None)

    def restore(self) -> None:
        """Have an address again, another one."""
        if not self._closed:
            self._token = f"{DIRECT_REPLY_TO}.{uuid4().hex}"
            self._vhost.direct_replies[self._token] = self._receive

    def _receive(self, message: Message) -> None:
        lease = DirectLease(delivery_of(message, DIRECT_REPLY_TO, counts=False))
        asyncio.get_running_loop().call_soon(self._hand_over, self._token, lease)

    def _hand_over(self, token: str, lease: DirectLease) -> None:
        if token in self._vhost.direct_replies:
            self._on_reply(lease)
