"""The one place the runtime reports to: counts it, logs it, journals it."""

import logging

from amqp_agents.clock import Clock, SystemClock
from amqp_agents.errors import AgentError, ErrorCode, InvalidPayloadError
from amqp_agents.observability.events import Event, log_event
from amqp_agents.observability.journal import Entry, Journal
from amqp_agents.observability.metrics import Metrics
from amqp_agents.outcome import Ack, DeadLetter, Outcome, Release, Retry
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol import AgentMessage
from amqp_agents.protocol.error_payload import text_of
from amqp_agents.protocol.unpacking import read_json
from amqp_agents.routing.breaker_state import BreakerState, Transition
from amqp_agents.routing.breakers import Moved

logger = logging.getLogger("amqp_agents")

MAX_READ_BYTES = 1_048_576
_CODES = frozenset(ErrorCode)

EVENTS: dict[type, Event] = {
    Retry: Event.DELIVERY_RETRIED,
    DeadLetter: Event.DELIVERY_DEAD,
    Release: Event.DELIVERY_RELEASED,
}


BREAKER_VALUES = {
    BreakerState.CLOSED: 0,
    BreakerState.HALF_OPEN: 1,
    BreakerState.OPEN: 2,
    BreakerState.HELD: 3,
}


class Telemetry:
    """Metrics, log events and the journal of one app."""

    def __init__(
        self,
        *,
        metrics: Metrics | None = None,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.metrics = metrics if metrics is not None else Metrics()
        self.journal = journal
        self._clock: Clock = clock if clock is not None else SystemClock()

    def on_clock(self, clock: Clock) -> "Telemetry":
        """Return the same telemetry with times taken from `clock`."""
        return Telemetry(metrics=self.metrics, journal=self.journal, clock=clock)

    def confirmed(self, exchange: str) -> None:
        """A publish of any kind was confirmed by the broker."""
        self.metrics.publishes.labels(exchange, "confirmed").inc()

    def published(self, message: AgentMessage, exchange: str, routing_key: str) -> None:
        """A message is on its way for the first time; copies of it that wait or rest are not."""
        self._record("sent", message.sender.agent_id, message, f"{exchange} {routing_key}")

    def unroutable(self, message: AgentMessage) -> None:
        """A message came back: nobody declared its recipient."""
        self._record("unroutable", message.sender.agent_id, message, "no such agent")

    def publish_failed(self, message_id: str, exchange: str, error: AgentError) -> None:
        """A publish ended without a confirm."""
        self.metrics.publishes.labels(exchange, type(error).__name__).inc()

    def publish_repeated(self, message_id: str, exchange: str, error: AgentError) -> None:
        """A publish is tried again."""
        self.publish_failed(message_id, exchange, error)
        log_event(
            logger, Event.PUBLISH_REPEATED, message_id=message_id, target=exchange, reason=error
        )

    def handled(self, agent: str, delivery: Delivery, outcome: Outcome, seconds: float) -> None:
        """A handling ended with `outcome` and its effects are confirmed."""
        self.metrics.handling_seconds.labels(agent).observe(seconds)
        what, note = _told(outcome, delivery)
        self.metrics.deliveries.labels(agent, what).inc()
        if isinstance(outcome, DeadLetter):
            self.metrics.dead_letters.labels(agent, code_of(outcome.error).value).inc()
        if event := EVENTS.get(type(outcome)):
            log_event(
                logger,
                event,
                agent=agent,
                queue=delivery.queue,
                message_id=message_id_of(delivery),
                attempt=delivery.attempt,
                reason=note,
            )
        if delivery.message is not None:
            self._record(what, agent, delivery.message, note)

    def ignored(self, agent: str, delivery: Delivery, reason: str) -> None:
        """An event is for nobody here; counted once its delivery is settled."""
        log_event(
            logger,
            Event.EVENT_IGNORED,
            agent=agent,
            queue=delivery.queue,
            message_id=message_id_of(delivery),
            reason=reason,
        )

    def unsettled(self, agent: str, delivery: Delivery, reason: object) -> None:
        """The outcome could not be carried out; the delivery is kept or comes again."""
        self.metrics.unsettled.labels(agent).inc()
        log_event(
            logger,
            Event.DELIVERY_UNSETTLED,
            agent=agent,
            queue=delivery.queue,
            message_id=message_id_of(delivery),
            reason=reason,
        )

    def unreadable(self, agent: str, delivery: Delivery) -> None:
        """Properties of a foreign sender's could not be read; it is handled without them."""
        self.metrics.unreadable.labels(agent).inc()
        log_event(
            logger,
            Event.PROPERTY_UNREADABLE,
            agent=agent,
            queue=delivery.queue,
            message_id=message_id_of(delivery),
            reason="; ".join(delivery.unreadable),
        )

    def settlement_lost(self, agent: str, delivery: Delivery) -> None:
        """The ack was lost with its connection."""
        self.metrics.lost_settlements.labels(agent).inc()
        self.unsettled(agent, delivery, "connection lost before the ack; it will come again")

    def reply_undelivered(self, agent: str, message: AgentMessage, to: str, reason: object) -> None:
        """The caller left, or could not be reached before its deadline."""
        self.metrics.undelivered_replies.labels(agent).inc()
        log_event(
            logger,
            Event.REPLY_UNDELIVERED,
            agent=agent,
            message_id=message.message_id,
            target=to,
            reason=reason,
        )

    def breaker_moved(self, moved: Moved) -> None:
        """The circuit breaker of an agent here, or of one of its dependencies, changed state."""
        key, transition = moved.key, moved.transition
        gauge = self.metrics.breaker_state.labels(key.agent, key.dependency)
        gauge.set(BREAKER_VALUES[transition.new])
        self._breaker(transition, agent=key.agent, target=key.dependency or None)

    def target_moved(self, moved: Moved) -> None:
        """The circuit breaker of an agent that is asked from here changed state."""
        self._breaker(moved.transition, target=moved.key.agent)

    def _breaker(self, transition: Transition, **whose: str | None) -> None:
        state = transition.new.value
        log_event(logger, Event.BREAKER_MOVED, **whose, reason=transition.reason, state=state)

    def reply_late(self, message_id: str, reason: str) -> None:
        """A reply came for a request that had ended."""
        self.metrics.late_replies.inc()
        log_event(logger, Event.REPLY_LATE, message_id=message_id, reason=reason)

    def _record(self, what: str, by: str, message: AgentMessage, note: str) -> None:
        if self.journal is not None:
            self.journal.record(Entry(self._clock.time(), what, by, message, note))


def code_of(error: BaseException) -> ErrorCode:
    """Return the code an error has on the wire; UNKNOWN for one that is none of ours.

    >>> code_of(TimeoutError()).value
    'UNKNOWN'
    """
    code: object = error.code if isinstance(error, AgentError) else None
    known = isinstance(code, str) and code in _CODES  # a subclass of a user's may say anything
    return ErrorCode(str(code)) if known else ErrorCode.UNKNOWN


def _told(outcome: Outcome, delivery: Delivery) -> tuple[str, str]:
    match outcome:
        case Ack(ignored=ignored):
            return "ignored" if ignored else "handled", ""
        case Retry(delay, error):
            return "retried", f"attempt {delivery.attempt}, again in {delay:g} s: {text_of(error)}"
        case DeadLetter(error):
            return "dead-lettered", f"{code_of(error).value}: {text_of(error)}"
        case Release(reason):
            return "released", reason


def message_id_of(delivery: Delivery) -> str | None:
    """Return the message's id as far as it can be known."""
    if delivery.message is not None:
        return delivery.message.message_id
    header = delivery.properties.headers.get("aa-message-id")
    if isinstance(header, str):
        return header
    return written_id(delivery) or delivery.properties.message_id


def written_id(delivery: Delivery) -> str | None:
    """Return the id that stands in the body of a message which is not readable as a whole."""
    try:
        body = read_json(delivery.body, delivery.properties, max_bytes=MAX_READ_BYTES)
    except InvalidPayloadError:
        return None
    found = body.get("message_id") if isinstance(body, dict) else None
    return found if isinstance(found, str) and found else None
