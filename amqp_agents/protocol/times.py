"""Moments on the wire: UTC, in milliseconds, read from whatever a sender writes."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_BELOW = 1e11  # as seconds the year 5138, as milliseconds 1973


def utc_ms(value: Any) -> datetime:
    """Read a moment: a datetime, ISO 8601 text, or seconds or milliseconds since the epoch.

    Without an offset it is UTC; finer digits than milliseconds are cut off.

    Raises: ValueError.

    >>> utc_ms("2026-07-13T12:00:00.123456789+08:00").isoformat()
    '2026-07-13T04:00:00.123000+00:00'
    >>> utc_ms(1783915200) == utc_ms(1783915200000) == utc_ms("2026-07-13T04:00:00")
    True
    """
    try:
        moment = _moment(value)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (OverflowError, ValueError) as error:
        raise ValueError("expected a moment: ISO 8601, or seconds since the epoch") from error
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        return datetime.fromisoformat(value.strip().upper())
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        scale = 1_000_000 if abs(value) < _SECONDS_BELOW else 1000
        return _EPOCH + timedelta(microseconds=round(value * scale))
    raise ValueError("not a moment")


def utc_now() -> datetime:
    """Return the time of the machine, as messages carry it."""
    return utc_ms(datetime.now(UTC))


def iso(moment: datetime) -> str:
    """Write a UTC moment as messages carry it.

    >>> iso(utc_ms(0))
    '1970-01-01T00:00:00.000Z'
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def epoch_ms(moment: datetime) -> int:
    """Return whole milliseconds since the epoch.

    >>> epoch_ms(utc_ms("1970-01-01T00:00:01.5Z"))
    1500
    """
    return (moment - _EPOCH) // timedelta(milliseconds=1)
