"""What is let in: subscriptions of an inbox, as the gate says, and slots for handlings."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from amqp_agents.brokers.base import Broker, Lease, Subscription
from amqp_agents.clock import Timer
from amqp_agents.pipeline import Gate

TRIAL_SECONDS = 1.0

Begin: TypeAlias = Callable[[Lease], asyncio.Task[None]]


class Slots:
    """Room for `most` handlings at once, and for what the gate allows of newer ones.

    What runs since before the gate last closed takes up room, but does not count against the
    gate's limit: a probe need not wait for the last slow handling.
    """

    def __init__(self, most: int, gate: Gate) -> None:
        self._most, self._gate = most, gate
        self._running = self._counted = self._closings = 0
        self._shut = self._refusing = False
        self._waiting: deque[asyncio.Future[int | None]] = deque()
        gate.follow(self._obey)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[bool]:
        """Wait for room and take it; False if the delivery is to be handed back instead."""
        taken = await self._enter()
        try:
            yield taken is not None
        finally:
            if taken is not None:
                self._leave(taken)

    def shut(self) -> None:
        """Let nobody in any more."""
        self._shut = True

    def refuse(self, *, refusing: bool = True) -> None:
        """Send away who waits, since nothing is consumed that could come straight back."""
        self._refusing = refusing
        self._update()

    def _obey(self) -> None:
        if self._gate.closed:
            self._closings += 1
            self._counted = 0
        self._update()

    def _room(self) -> bool:
        limit = self._gate.limit
        within = limit is None or self._counted < limit
        return within and self._running < self._most and not self._shut

    async def _enter(self) -> int | None:
        if self._refusing:
            return None
        if self._room() and not self._waiting:
            return self._take()
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            taken: int | None = await place
        except asyncio.CancelledError:
            if not place.cancelled() and (unused := place.result()) is not None:
                self._leave(unused)
            raise
        return taken

    def _take(self) -> int:
        self._running += 1
        self._counted += 1
        return self._closings

    def _leave(self, taken: int) -> None:
        self._running -= 1
        if taken == self._closings:
            self._counted -= 1
        self._update()

    def _update(self) -> None:
        while self._waiting and (self._refusing or self._room()):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None if self._refusing else self._take())


class Feed:
    """One subscription, and the handlings of what came by it."""

    def __init__(self, begin: Begin) -> None:
        self.subscription: Subscription
        self.handlings: set[asyncio.Task[None]] = set()
        self._begin = begin

    def receive(self, lease: Lease) -> None:
        """Begin to handle one delivery."""
        handling = self._begin(lease)
        self.handlings.add(handling)
        handling.add_done_callback(self.handlings.discard)

    async def retire(self) -> None:
        """Close the subscription once everything that came by it is settled."""
        while self.handlings:
            await asyncio.wait(set(self.handlings))
        await self.subscription.close()


class Intake:
    """Consumes one queue for one agent, as much at once as is known to be safe.

    It begins with one delivery at a time, and opens once a message that came for the first time
    was settled or outlived a second: what kills the process is then alone when it kills again,
    and its neighbours are not counted down with it. It opens by further subscriptions, since a
    prefetch cannot be changed, and closes by cancelling all of them. Together they prefetch no
    more than the gate allows, so that hardly anything is delivered only to be handed back,
    which RabbitMQ 3.10 and 4.0 count.
    """

    def __init__(self, broker: Broker, queue: str, *, most: int, gate: Gate, begin: Begin) -> None:
        self.slots = Slots(most, gate)
        self._broker, self._queue, self._most, self._gate = broker, queue, most, gate
        self._begin, self._careful = begin, most > 1
        self._stopped = self._was_closed = False
        self._feeds: list[Feed] = []
        self._prefetch = 0
        self._retiring: dict[asyncio.Task[None], Feed] = {}
        self._trial: Timer | None = None
        self._obeying: asyncio.Task[None] | None = None
        self._look, self._still = asyncio.Event(), asyncio.Event()
        gate.follow(self._gate_moved)

    @property
    def subscriptions(self) -> list[Subscription]:
        """Where deliveries come by now; none while the gate is closed."""
        return [feed.subscription for feed in self._feeds]

    async def start(self, *, timeout_seconds: float) -> None:
        """Consume; return once deliveries can flow, with a BrokerError if they cannot in time."""
        await self._widen()
        self._obeying = asyncio.create_task(self._obey(), name=f"intake-{self._queue}")
        self._obeying.add_done_callback(tell_if_it_failed)
        for subscription in self.subscriptions:
            await subscription.ready(timeout_seconds)

    def proven(self) -> None:
        """A message that came for the first time did not kill the process: open."""
        if self._trial is not None:
            self._trial.cancel()
        if self._careful:
            self._careful = False
            self._look.set()

    async def stilled(self) -> None:
        """Return once nothing is consumed, so that a release does not come straight back."""
        await self._still.wait()

    async def stop(self) -> None:
        """Consume no more; what waits for room is sent away, what runs can still be settled."""
        self._stopped = True
        if self._trial is not None:
            self._trial.cancel()
        self.slots.shut()
        self._look.set()
        if self._obeying is not None:
            await asyncio.wait({self._obeying})
        await self._cancel()
        self.slots.refuse()

    async def close(self) -> None:
        """Hand back everything unsettled."""
        feeds = list(self._retiring.values())
        await asyncio.gather(*(feed.subscription.close() for feed in feeds))
        retiring = set(self._retiring)
        for each in retiring:
            each.cancel()
        if retiring:
            await asyncio.wait(retiring)

    def _gate_moved(self) -> None:
        self._was_closed = self._was_closed or self._gate.closed
        self._look.set()

    async def _obey(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if self._stopped:
                return
            if self._was_closed:
                self._was_closed = False
                await self._cancel()
            if self._gate.closed:
                self.slots.refuse()
            else:
                await self._widen()

    async def _widen(self) -> None:
        """Prefetch as much as is allowed by now; less than before only ever follows a closing."""
        limit = self._gate.limit
        allowed = self._most if limit is None else min(limit, self._most)
        more = (1 if self._careful else allowed) - self._prefetch
        if more <= 0:
            return
        self._still.clear()
        self.slots.refuse(refusing=False)
        feed = Feed(self._arrived)
        feed.subscription = await self._broker.consume(self._queue, feed.receive, prefetch=more)
        self._feeds.append(feed)
        self._prefetch += more

    def _arrived(self, lease: Lease) -> asyncio.Task[None]:
        if self._careful and self._trial is None and not lease.delivery.redelivered:
            # A handler that takes long, or asks its own agent, must not be alone until it ends.
            self._trial = self._broker.clock.call_later(TRIAL_SECONDS, self.proven)
        return self._begin(lease)

    async def _cancel(self) -> None:
        """Cancel, and close later: what runs is settled where it came from."""
        await asyncio.gather(*(subscription.cancel() for subscription in self.subscriptions))
        feeds, self._feeds, self._prefetch = self._feeds, [], 0
        for feed in feeds:
            retiring = asyncio.create_task(feed.retire(), name=f"retire-{self._queue}")
            self._retiring[retiring] = feed
            retiring.add_done_callback(self._retired)
        self._still.set()

    def _retired(self, retiring: asyncio.Task[None]) -> None:
        del self._retiring[retiring]
        tell_if_it_failed(retiring)


def tell_if_it_failed(task: asyncio.Task[Any]) -> None:
    """Report a defect that ended a task of ours; nobody awaits it."""
    defect = None if task.cancelled() else task.exception()
    if defect is not None:
        told = {"message": f"{task.get_name()} failed", "exception": defect}
        task.get_loop().call_exception_handler(told)
