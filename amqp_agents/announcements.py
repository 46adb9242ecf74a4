"""What changed about an agent itself, told to whoever listens: its circuit breaker."""

import asyncio

from amqp_agents.context import Outgoing, compose_message
from amqp_agents.errors import AgentError
from amqp_agents.observability import Telemetry
from amqp_agents.protocol import AgentRef
from amqp_agents.publisher import AsyncPublisher
from amqp_agents.routing.breaker_state import BreakerState
from amqp_agents.routing.breakers import Moved

EVENTS = {
    BreakerState.CLOSED: "breaker.closed",
    BreakerState.OPEN: "breaker.opened",
    BreakerState.HALF_OPEN: "breaker.half_open",
    BreakerState.HELD: "breaker.held",
}


class Announcements:
    """Counts, logs and publishes every change of state; the event is sent as best it can be."""

    def __init__(self, publisher: AsyncPublisher, telemetry: Telemetry) -> None:
        self._publisher, self._telemetry = publisher, telemetry
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = False

    def tell(self, sender: AgentRef, moved: tuple[Moved, ...]) -> None:
        """Tell of what moved, and wait for nothing."""
        if self._closed:  # a worker that has stopped knows nothing of its agents any more
            return
        for each in moved:
            self._telemetry.breaker_moved(each)
            sending = asyncio.create_task(self._send(sender, each), name="breaker-event")
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Give up what is not sent yet, and tell no more."""
        self._closed = True
        sending = set(self._sending)
        for each in sending:
            each.cancel()
        if sending:
            await asyncio.wait(sending)

    async def _send(self, sender: AgentRef, moved: Moved) -> None:
        transition = moved.transition
        payload = {
            "agent": moved.key.agent,
            "dependency": moved.key.dependency or None,
            "from": transition.old.value,
            "to": transition.new.value,
            "reason": transition.reason,
        }
        message = compose_message(Outgoing(payload, event=EVENTS[transition.new]), sender=sender)
        try:
            await self._publisher.publish(message)
        except AgentError:
            return  # counted as a failed publish; the log and the gauge have it all the same
