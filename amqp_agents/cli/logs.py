"""Logs of a running worker: on stderr, for people or as JSON lines; passwords never."""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from amqp_agents.cli.error_text import redacted

# At INFO these tell of every frame and call, which is nothing an operator asked for.
CHATTY = ("aio_pika", "aiormq", "asyncio", "httpcore", "httpx", "pamqp")


class Level(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Lines(logging.Formatter):
    """One line for people; URLs without their passwords, also in tracebacks."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, event with its fields, or the message."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event = getattr(record, "event", None)
        if event is None:
            told["message"] = record.getMessage()
        else:
            told |= {"event": event, **getattr(record, "fields", {})}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return redacted(json.dumps(told, ensure_ascii=False, default=str))


def start_logging(level: Level, *, as_json: bool) -> None:
    """Log to stderr from now on, in place of any handler that was there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Lines())
    number = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    quiet = number if level is Level.DEBUG else max(number, logging.WARNING)
    for name in CHATTY:
        logging.getLogger(name).setLevel(quiet)
