"""Log events: fixed names with fixed fields, so that logs can be searched and counted.

event               level    fields
delivery_retried    INFO     agent queue message_id attempt reason
delivery_dead       WARNING  agent queue message_id attempt reason
delivery_released   INFO     agent queue message_id attempt reason
delivery_unsettled  WARNING  agent queue message_id reason
property_unreadable WARNING  agent queue message_id reason
event_ignored       DEBUG    agent queue message_id reason
publish_repeated    WARNING  message_id target reason
reply_undelivered   WARNING  agent message_id target reason
reply_late          INFO     message_id reason
breaker_moved       WARNING  agent target reason state
drain_started       INFO     agents reason
drain_finished      INFO     agents reason

Payloads are never logged. Field values are strings or numbers, cut to 500 characters; the
line is one line whatever they hold.
"""

import logging
from enum import Enum

_LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})  # a forged line would look like ours


class Event(Enum):
    """Every event the runtime logs, with its level."""

    DELIVERY_RETRIED = ("delivery_retried", logging.INFO)
    DELIVERY_DEAD = ("delivery_dead", logging.WARNING)
    DELIVERY_RELEASED = ("delivery_released", logging.INFO)
    DELIVERY_UNSETTLED = ("delivery_unsettled", logging.WARNING)
    PROPERTY_UNREADABLE = ("property_unreadable", logging.WARNING)
    EVENT_IGNORED = ("event_ignored", logging.DEBUG)
    PUBLISH_REPEATED = ("publish_repeated", logging.WARNING)
    REPLY_UNDELIVERED = ("reply_undelivered", logging.WARNING)
    REPLY_LATE = ("reply_late", logging.INFO)
    BREAKER_MOVED = ("breaker_moved", logging.WARNING)
    DRAIN_STARTED = ("drain_started", logging.INFO)
    DRAIN_FINISHED = ("drain_finished", logging.INFO)


def log_event(logger: logging.Logger, event: Event, **fields: object) -> None:
    """Log one event; fields are readable in the line and structured in `record.fields`.

    Absent (None) fields are left out.
    """
    name, level = event.value
    if not logger.isEnabledFor(level):
        return
    told = {key: _short(value) for key, value in fields.items() if value is not None}
    line = " ".join([name, *(f"{key}={value}" for key, value in told.items())])
    line = line.translate(_LINE_ENDS)
    logger.log(level, "%s", line, extra={"event": name, "fields": told})


def _short(value: object) -> object:
    if isinstance(value, int | float):
        return value
    text = str(value)
    return text if len(text) <= 500 else text[:499] + "…"
