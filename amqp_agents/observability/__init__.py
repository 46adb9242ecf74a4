"""What the runtime tells of itself: metrics, log events, and a journal of messages."""

from amqp_agents.observability.events import Event, log_event
from amqp_agents.observability.journal import Entry, Journal, MemoryJournal
from amqp_agents.observability.metrics import Metrics
from amqp_agents.observability.telemetry import Telemetry

__all__ = ["Entry", "Event", "Journal", "MemoryJournal", "Metrics", "Telemetry", "log_event"]
