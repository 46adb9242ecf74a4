"""Payloads as a user gives them: in the command, from stdin (`-`), or from a file (`@name`)."""

import sys
from pathlib import Path
from typing import Any

from amqp_agents.errors import ConfigurationError, InvalidPayloadError
from amqp_agents.protocol.json_values import check_json
from amqp_agents.protocol.properties import Properties
from amqp_agents.protocol.unpacking import read_json

MAX_BYTES = 64 * 1024 * 1024


def read_payload(given: str) -> dict[str, Any]:
    """Return the payload, a JSON object.

    Raises: InvalidPayloadError, ConfigurationError for a file that cannot be read.

    >>> read_payload('{"text": "refund please"}')
    {'text': 'refund please'}
    """
    raw = _raw(given)
    try:
        payload = read_json(raw, Properties(), max_bytes=MAX_BYTES)
        check_json(payload, at="payload")
    except InvalidPayloadError as error:
        raise InvalidPayloadError(
            f"the payload cannot be read: {error}; give an object in single quotes: "
            """'{"text": "…"}', or @file, or - for stdin"""
        ) from None
    if not isinstance(payload, dict):
        raise InvalidPayloadError(
            f"the payload is {_kind(payload)}; agents take an object: "
            """'{"text": "…"}'"""
        )
    return payload


def _raw(given: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read()
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"payload file {given[1:]!r} cannot be read: {error.strerror}; @ names a file"
            ) from None
    return given.encode("utf-8", "surrogateescape")


def _kind(payload: object) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(payload), "a number")
