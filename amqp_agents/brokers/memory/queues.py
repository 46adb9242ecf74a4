"""One queue: who gets which message next, what expires, what comes back, what does not fit."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol, TypeAlias

from amqp_agents.brokers.memory.alarm import Alarm
from amqp_agents.brokers.memory.messages import Message, Reason
from amqp_agents.brokers.memory.ready import Ready
from amqp_agents.brokers.memory.settings import QueueSettings
from amqp_agents.clock import Clock
from amqp_agents.topology.model import Queue, QueueKind

NEUTRAL_PRIORITY = 4  # what an absent priority counts as on a quorum queue
LOW_MARK = 0.8  # of max-length: down there a quorum queue that rejected takes messages again
GRAIN_SECONDS = 0.0005  # half of the unit in which a broker tells times apart

Bury: TypeAlias = Callable[[Message, Reason], None]


class Consumer(Protocol):
    """Who takes messages from a queue while it has room for more."""

    @property
    def room(self) -> int:
        """How many messages it takes now."""

    def receive(self, queue: "MemoryQueue", message: Message) -> None:
        """Take over one message of the queue, unsettled."""

    def found(self, *, exists: bool) -> None:
        """Learn that the queue was declared or deleted."""


class MemoryQueue:
    """A declared queue with its messages; `bury` takes those that died in it.

    Messages are handed out in a later turn of the event loop, round and round among the
    consumers with room. `unused` is called when its x-expires is over.
    """

    def __init__(
        self,
        declared: Queue,
        settings: QueueSettings,
        *,
        clock: Clock,
        consumers: deque[Consumer],
        bury: Bury,
        unused: Callable[[], None],
    ) -> None:
        self.declared, self.settings = declared, settings
        self.gone = False
        self._clock, self._consumers = clock, consumers
        self._bury, self._unused = bury, unused
        self._ready = Ready()
        self._positions = count()
        self._full = self._waking = False
        self._expiry = Alarm(clock, self._changed)
        self._disuse = Alarm(clock, self._check_use)
        self.touch()

    @property
    def depth(self) -> int:
        """How many messages wait."""
        return len(self._ready)

    @property
    def quorum(self) -> bool:
        """Whether it is a quorum queue: it counts failures, and limits softly."""
        return self.settings.kind is QueueKind.QUORUM

    def configure(self, settings: QueueSettings) -> None:
        """Obey other settings from now on; messages keep the expiry they have."""
        if settings != self.settings:
            self.settings = settings
            self.touch()
            self._trim()
            self._changed()

    def offer(self, message: Message) -> bool:
        """Store the message, or answer False: the queue is full and rejects."""
        # A quorum queue notices that it is full by the message that was one too many.
        if self.settings.rejects and (self._full if self.quorum else self._over(1)):
            return False
        message.due = self._due(message)
        message.position = next(self._positions)
        self._ready.add(message, self._priority(message))
        self._trim()
        self._changed()
        return True

    def take(self) -> Message | None:
        """Remove the next message for somebody who is no consumer."""
        self.touch()
        return self._take()

    def give_back(self, message: Message, *, failed: bool) -> None:
        """Take back an unsettled message; `failed` counts against the delivery limit."""
        if self.gone:
            return
        message.acquired += 1
        message.failures += failed
        limit = self.settings.delivery_limit
        if limit is not None and message.failures > limit:
            self._bury(message, Reason.DELIVERY_LIMIT)
        else:
            self._ready.give_back(message, in_place=not self.quorum)
        self._changed()

    def reject(self, message: Message) -> None:
        """Let an unsettled message die."""
        if not self.gone:
            self._bury(message, Reason.REJECTED)

    def wake(self) -> None:
        """Look for consumers with room, in the next turn of the event loop."""
        if not self._waking and not self.gone:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def touch(self) -> None:
        """Note that somebody uses the queue: its x-expires starts anew."""
        self._used_at = self._clock.time()
        if self.settings.expires_ms is not None:
            self._disuse.ask(self._used_at + self.settings.expires_ms / 1000)

    def close(self) -> None:
        """Forget everything: the queue was deleted."""
        self.gone = True
        self._ready = Ready()
        self._expiry.cancel()
        self._disuse.cancel()

    def _hand_out(self) -> None:
        self._waking = False
        while (consumer := self._next_consumer()) is not None:
            message = self._take()
            if message is None:
                return
            self.wake()  # before the call: a consumer that raises must not stop the others
            consumer.receive(self, message)

    def _next_consumer(self) -> Consumer | None:
        if self.settings.single_active:
            return next((one for one in [*self._consumers][:1] if one.room > 0), None)
        for _ in self._consumers.copy():
            consumer = self._consumers[0]
            self._consumers.rotate(-1)
            if consumer.room > 0:
                return consumer
        return None

    def _take(self) -> Message | None:
        self._expire()
        message = self._ready.take()
        self._note()
        return message

    def _changed(self) -> None:
        self._expire()
        self.wake()

    def _expire(self) -> None:
        for message in [*self._ready.take_expired(self._clock.time() + GRAIN_SECONDS)]:
            self._bury(message, Reason.EXPIRED)
        self._note()

    def _note(self) -> None:
        self._expiry.ask(self._ready.next_due())
        limit = self.settings.max_length
        self._full = self._full and limit is not None and self.depth > int(limit * LOW_MARK)

    def _trim(self) -> None:
        if self.settings.rejects:
            self._full = self._full or self._over(0)
            return
        while self._over(0) and (message := self._ready.take()) is not None:
            self._bury(message, Reason.MAXLEN)

    def _over(self, more: int) -> bool:
        settings = self.settings
        if settings.max_bytes is not None and self._ready.bytes > settings.max_bytes:
            return True
        if settings.max_length is None:
            return False
        room = sum(consumer.room for consumer in self._consumers)
        return self.depth + more - room > settings.max_length

    def _due(self, message: Message) -> float | None:
        given = (self.settings.ttl_ms, message.properties.expiration_ms)
        ttl_ms = min((one for one in given if one is not None), default=None)
        # Nothing at all left still means: unless a consumer takes it at once.
        return None if ttl_ms is None else self._clock.time() + max(1, ttl_ms) / 1000

    def _priority(self, message: Message) -> int:
        absent = NEUTRAL_PRIORITY if self.quorum else 0
        priority = message.properties.priority
        return min(absent if priority is None else priority, self.settings.max_priority)

    def _check_use(self) -> None:
        if self._consumers or self.settings.expires_ms is None:
            return
        until = self._used_at + self.settings.expires_ms / 1000
        if until <= self._clock.time() + GRAIN_SECONDS:
            self._unused()
        else:
            self._disuse.ask(until)
