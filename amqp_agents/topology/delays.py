"""Delays as the bits of a whole number of seconds: one boolean header for each set bit."""

import math
from collections.abc import Mapping
from typing import Any

from amqp_agents.errors import ConfigurationError

LEVELS = 17
MAX_DELAY_SECONDS = 2**LEVELS - 1
HEADERS = frozenset(f"d{level}" for level in range(LEVELS))


def whole_seconds(delay_seconds: float) -> int:
    """Return the delay in whole seconds, rounded up: late by less than a second, never early.

    Negative delays are none.

    Raises: ConfigurationError if it is not a number or longer than the chain can hold.

    >>> whole_seconds(0.2), whole_seconds(8), whole_seconds(-1)
    (1, 8, 0)
    """
    if math.isnan(delay_seconds) or delay_seconds > MAX_DELAY_SECONDS:
        raise ConfigurationError(
            f"a delay of {delay_seconds:g} s cannot be held;"
            f" the longest is {MAX_DELAY_SECONDS} s (36 hours)"
        )
    return math.ceil(max(0.0, delay_seconds))


def delay_headers(seconds: int) -> dict[str, bool]:
    """Return the headers that hold a message for `seconds` in the delay chain.

    Raises: ConfigurationError outside of 0 to `MAX_DELAY_SECONDS`.

    >>> delay_headers(10)
    {'d1': True, 'd3': True}
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise ConfigurationError(f"a delay is a whole number of seconds, not {seconds!r}")
    if not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise ConfigurationError(f"a delay is 0 to {MAX_DELAY_SECONDS} s, not {seconds} s")
    return {f"d{level}": True for level in range(LEVELS) if seconds >> level & 1}


def without_delay_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `headers` without those of a delay that is over.

    A message published with them again would be held again.

    >>> without_delay_headers({"d3": True, "aa-attempt": 2})
    {'aa-attempt': 2}
    """
    return {name: value for name, value in headers.items() if name not in HEADERS}
