"""A client of the broker in this process."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import uuid4

from amqp_agents.brokers.base import OnDelivery, Publishing
from amqp_agents.brokers.memory.consuming import MemoryBrowser, MemorySubscription
from amqp_agents.brokers.memory.faults import Fault, Faults
from amqp_agents.brokers.memory.messages import Message, as_on_wire
from amqp_agents.brokers.memory.replies import DirectReplies, QueueReplies
from amqp_agents.brokers.memory.vhost import VERSION, Vhost
from amqp_agents.clock import Clock, ManualClock
from amqp_agents.errors import (
    BrokerConnectionError,
    OutcomeUnknownError,
    PublishRejectedError,
    TopologyConflictError,
    TopologyMissingError,
    UnroutableMessageError,
)
from amqp_agents.protocol import check_body, check_properties
from amqp_agents.protocol.limits import BROKER_BODY_BYTES
from amqp_agents.topology.layout import reply_topology
from amqp_agents.topology.model import Topology
from amqp_agents.topology.names import REPLY
from amqp_agents.topology.plan import CONFLICT_REMEDY, Change, ChangeKind
from amqp_agents.topology.validate import validate

USER = "guest"
_REMEDY = "apply the topology first"
_LOST = "the connection was lost"
_REPLY_PREFETCH = 200
_CALL_SECONDS = 5.0


class _Connected(Protocol):
    """What ends with the connection, and some of it comes back with it."""

    @property
    def idle(self) -> bool: ...

    def lose(self, failure: str) -> None: ...

    def restore(self) -> None: ...

    async def close(self) -> None: ...


class MemoryBroker:
    """RabbitMQ as far as `Broker` reaches, in memory, on a clock that can be moved.

    It interprets the declared topology as RabbitMQ 4.3 does: exchanges of every type with
    alternates, expiry, dead-lettering, limits, strict priorities and delivery counts of quorum
    queues, mandatory returns, direct reply-to. A stream is an ordinary queue here. Brokers
    given the same `vhost` are clients of one server, and have its clock.
    """

    version = VERSION

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        vhost: Vhost | None = None,
        max_body_bytes: int = BROKER_BODY_BYTES,
    ) -> None:
        self.vhost = vhost or Vhost(clock or ManualClock())
        self.faults = Faults(disconnect=self._disconnect, reconnect=self._reconnect)
        self._max_body_bytes = max_body_bytes
        self._online = asyncio.Event()
        self._online.set()
        self._closed = False
        self._open: list[_Connected] = []

    @property
    def clock(self) -> Clock:
        return self.vhost.clock

    async def connect(self, *, timeout_seconds: float) -> None:
        await self._connected(timeout_seconds)

    async def publish(self, publishing: Publishing, *, timeout_seconds: float) -> None:
        check_body(publishing.body, self._max_body_bytes)
        check_properties(publishing.properties)
        await self._connected(timeout_seconds)
        fault = self.faults.take(publishing)
        if fault is Fault.REJECTED:
            raise PublishRejectedError(f"the broker refused {_target(publishing)}")
        if fault is not Fault.LOST:
            self._store(publishing)
        await asyncio.sleep(0)  # a confirm takes its time, and lets others have theirs
        if fault is not None or not self._online.is_set():
            raise OutcomeUnknownError(f"no confirm for {_target(publishing)}")

    async def consume(
        self, queue: str, on_delivery: OnDelivery, *, prefetch: int
    ) -> MemorySubscription:
        self._check_open()
        subscription = MemorySubscription(self.vhost, queue, on_delivery, prefetch=prefetch)
        self._note(subscription)
        if not self._online.is_set():
            subscription.lose(_LOST)
        return subscription

    async def open_replies(
        self, instance: str, on_reply: OnDelivery, *, direct: bool = False
    ) -> QueueReplies | DirectReplies:
        await self._connected(_CALL_SECONDS)
        if direct:
            replies = DirectReplies(self.vhost, on_reply, self._publish)
            self._note(replies)
            return replies
        if REPLY not in self.vhost.exchanges:
            raise TopologyMissingError([f"exchange {REPLY}"], remedy=_REMEDY)
        topology = reply_topology(instance)
        for change in self.vhost.plan(topology):
            self.vhost.declare(change)
        (queue,) = topology.queues
        subscription = await self.consume(queue.name, on_reply, prefetch=_REPLY_PREFETCH)
        return QueueReplies(instance, subscription, self._publish)

    async def browse(self, queue: str) -> MemoryBrowser:
        await self._connected(_CALL_SECONDS)
        browser = MemoryBrowser(self.vhost, queue)
        self._note(browser)
        return browser

    async def depth(self, queue: str) -> int | None:
        await self._connected(_CALL_SECONDS)
        found = self.vhost.queues.get(queue)
        return None if found is None else found.depth

    async def plan(self, topology: Topology) -> Sequence[Change]:
        await self._connected(_CALL_SECONDS)
        return self.vhost.plan(validate(topology, VERSION))

    async def apply(
        self, topology: Topology, *, on_change: Callable[[Change], None] | None = None
    ) -> Sequence[Change]:
        changes = await self.plan(topology)
        conflicts = [str(change) for change in changes if change.kind is ChangeKind.CONFLICT]
        if conflicts:
            raise TopologyConflictError(conflicts, remedy=CONFLICT_REMEDY)
        for change in changes:
            self.vhost.declare(change)
            if on_change is not None:
                on_change(change)
        return changes

    async def close(self) -> None:
        if not self._closed:
            self._disconnect()
            self._closed = True
            for part in self._open:
                await part.close()
            self._online.set()  # whoever waits for the connection learns that it is over

    async def _publish(self, publishing: Publishing, timeout_seconds: float) -> None:
        await self.publish(publishing, timeout_seconds=timeout_seconds)

    async def _connected(self, timeout_seconds: float) -> None:
        if not self._online.is_set():
            try:
                async with self.clock.timeout(timeout_seconds):
                    await self._online.wait()
            except TimeoutError:
                raise BrokerConnectionError(
                    f"no connection within {timeout_seconds:g} s; nothing was sent"
                ) from None
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerConnectionError("the broker was closed; nothing was sent")

    def _store(self, publishing: Publishing) -> None:
        properties = replace(
            as_on_wire(publishing.properties), message_id=uuid4().hex, user_id=USER
        )
        message = Message(publishing.body, properties, publishing.exchange, publishing.routing_key)
        try:
            taken = self.vhost.publish(message)
        except KeyError:
            raise UnroutableMessageError(
                f"exchange not found: {publishing.exchange}; {_REMEDY}"
            ) from None
        if taken is None and publishing.mandatory:
            raise UnroutableMessageError(f"no queue takes {_target(publishing)}")
        if taken is False:
            raise PublishRejectedError(f"a queue is full: {_target(publishing)} was refused")

    def _disconnect(self) -> None:
        self._online.clear()
        for part in self._open:
            part.lose(_LOST)

    def _reconnect(self) -> None:
        if self._online.is_set():
            return
        self._online.set()
        for part in self._open:
            part.restore()

    def _note(self, part: "_Connected") -> None:
        self._open = [*(known for known in self._open if not known.idle), part]


def _target(publishing: Publishing) -> str:
    exchange = publishing.exchange or "(default)"
    return f"a message to exchange {exchange!r} with routing key {publishing.routing_key!r}"
