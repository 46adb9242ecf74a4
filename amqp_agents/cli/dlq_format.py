"""How a dead letter looks: a row of a list, everything about one, a JSON object."""

import base64
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from amqp_agents.cli.output import pretty, span
from amqp_agents.dead_letters import DeadLetterFacts
from amqp_agents.errors import InvalidPayloadError
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol.unpacking import read_json

COLUMNS = ("agent", "message id", "reason", "attempts", "when", "age", "message")
MAX_BODY_BYTES = 16 * 1024 * 1024
HEX_BYTES = 256


def row_of(facts: DeadLetterFacts, now: datetime) -> tuple[str, ...]:
    """Return the cells of `COLUMNS`."""
    return (
        facts.agent,
        facts.message_id,
        facts.code,
        str(facts.attempts),
        _when(facts.at),
        "?" if facts.at is None else span((now - facts.at).total_seconds()),
        facts.message,
    )


def facts_json(facts: DeadLetterFacts, now: datetime) -> dict[str, Any]:
    """Return what a list tells of one dead letter, for programs. Units: age in seconds."""
    age = None if facts.at is None else max(0, round((now - facts.at).total_seconds()))
    return asdict(facts) | {"age_seconds": age}


def body_json(delivery: Delivery) -> dict[str, Any]:
    """Return the body as JSON data, else as text, else in base64: exactly one of the three."""
    try:
        parsed = read_json(delivery.body, delivery.properties, max_bytes=MAX_BODY_BYTES)
    except InvalidPayloadError:
        pass
    else:
        return {"body": parsed}
    try:
        return {"body_text": delivery.body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(delivery.body).decode()}


def body_text(delivery: Delivery) -> str:
    """Return the body for people: indented JSON, text, or the first bytes of it."""
    told = body_json(delivery)
    if "body" in told:
        return pretty(told["body"])
    if "body_text" in told:
        return str(told["body_text"])
    shown = delivery.body[:HEX_BYTES].hex(" ")
    return shown + (" …" if len(delivery.body) > HEX_BYTES else "")


def properties_json(delivery: Delivery) -> dict[str, Any]:
    """Return the properties that are set, headers included."""
    told = asdict(delivery.properties)
    return {name: value for name, value in told.items() if value is not None}


def told_in_full(facts: DeadLetterFacts, delivery: Delivery) -> list[str]:
    """Return everything about one dead letter as lines: facts, headers, body."""
    by = "RabbitMQ" if facts.by_broker else facts.agent
    reason = facts.code if facts.error is None else f"{facts.code} ({facts.error})"
    told = {
        "message id": facts.message_id,
        "agent": facts.agent,
        "reason": reason,
        "message": facts.message,
        "given up by": by,
        "attempts": str(facts.attempts),
        "when": _when(facts.at),
        "written": _when(facts.sent_at),
        "sender": facts.sender or "?",
        "intent": facts.intent or "(none)",
        "came by": f"exchange {facts.exchange or '(default)'!r}, key {facts.routing_key!r}",
    }
    width = max(map(len, told))
    lines = [f"{name.ljust(width)}  {value}" for name, value in told.items()]
    lines += ["", "headers", *header_lines(delivery.properties.headers)]
    kind = delivery.properties.content_type or "no content type"
    return [*lines, "", f"body ({len(delivery.body)} bytes, {kind})", body_text(delivery)]


def header_lines(headers: Mapping[str, Any]) -> list[str]:
    """Return a line for each header, by name.

    >>> header_lines({"aa-intent": "review", "aa-attempt": 2})
    ['  aa-attempt: 2', '  aa-intent: review']
    """
    return [f"  {name}: {_shown(value)}" for name, value in sorted(headers.items())]


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return pretty(value).replace("\n", "\n  ")
    return _when(value) if isinstance(value, datetime) else str(value)


def _when(moment: datetime | None) -> str:
    return "?" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
