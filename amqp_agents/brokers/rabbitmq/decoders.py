"""Decoders that read whatever another client wrote, instead of ending the connection.

The library decodes headers in the reader of the connection. One timestamp beyond the year
9999 or one header that is not UTF-8 would raise there, end the connection, be delivered
again by the broker, and so on for ever, for every consumer of the queue. These decoders
answer `Unreadable`, or `Mended` text, where a value cannot be represented; `readable` takes
both out again, and says what they were.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pamqp import decode

Decoded = tuple[int, Any]

MAX_DEPTH = 32  # tables in tables; deeper ones would exhaust the interpreter's stack


class Unreadable(str):
    """Stands where a value could not be read, and says why; nothing is read in its place."""

    __slots__ = ()


class Mended(str):
    """Text that was no UTF-8; replacement characters stand for what could not be read."""

    __slots__ = ()


def readable(value: Any, place: str, faults: list[str]) -> Any:
    """Return a decoded value with None where it was unreadable; adds to `faults` where and why.

    >>> faults: list[str] = []
    >>> readable({"at": Unreadable("no time")}, "headers", faults), faults
    ({'at': None}, ['headers.at: no time'])
    """
    if isinstance(value, Unreadable):
        faults.append(f"{place}: {value}")
        return None
    if isinstance(value, Mended):
        faults.append(f"{place}: it is not UTF-8")
        return str(value)
    if isinstance(value, dict):
        return _readable_table(value, place, faults)
    if isinstance(value, list):
        return [readable(item, f"{place}[{at}]", faults) for at, item in enumerate(value)]
    return value


def _readable_table(value: dict[str, Any], place: str, faults: list[str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(key, Unreadable):  # a fault of the table itself
            faults.append(f"{place}: {key}")
            continue
        name = readable(key, f"{place}, a name", faults)
        read[name] = readable(item, f"{place}.{name}"[:200], faults)
    return read


def timestamp(value: bytes) -> Decoded:
    """Read a time in seconds or milliseconds, as far as a calendar has it.

    >>> timestamp((2**64 - 1).to_bytes(8, "big"))
    (8, '18446744073709551615 is no time in seconds or milliseconds')
    """
    number = int.from_bytes(value[:8], "big")
    seconds = number / 1000 if number > 0xFFFFFFFF else number
    try:
        return 8, datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return 8, Unreadable(f"{number} is no time in seconds or milliseconds")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Mended(value.decode("utf-8", "replace"))


def short_string(value: bytes) -> Decoded:
    r"""Read up to 255 bytes of text.

    >>> short_string(bytes([2]) + b"a\xff")
    (3, 'a\ufffd')
    """
    end = (value[0] if value else 0) + 1
    return end, _text(value[1:end])


def long_string(value: bytes) -> Decoded:
    """Read text behind a length of four bytes."""
    end = int.from_bytes(value[:4], "big") + 4
    return end, _text(value[4:end])


def table(value: bytes, depth: int = 0) -> Decoded:
    """Read a field table; of one that is broken inside, what stands before the fault."""
    end = int.from_bytes(value[:4], "big") + 4
    data: dict[str, Any] = {}
    offset = 4
    while offset < min(end, len(value)) and depth < MAX_DEPTH:
        consumed, key = short_string(value[offset:end])
        offset += consumed
        consumed, item = _typed(value[offset:end], depth)
        if not consumed:
            break
        offset += consumed
        data[key] = item
    if offset < end:
        data[_cut_off(depth)] = None
    return end, data


def array(value: bytes, depth: int = 0) -> Decoded:
    """Read a field array; of one that is broken inside, what stands before the fault."""
    end = int.from_bytes(value[:4], "big") + 4
    data: list[Any] = []
    offset = 4
    while offset < min(end, len(value)) and depth < MAX_DEPTH:
        consumed, item = _typed(value[offset:end], depth)
        if not consumed:
            break
        offset += consumed
        data.append(item)
    if offset < end:
        data.append(_cut_off(depth))
    return end, data


def _cut_off(depth: int) -> Unreadable:
    deep = depth >= MAX_DEPTH
    return Unreadable(
        f"nests deeper than {MAX_DEPTH}" if deep else "holds a value of no known type"
    )


def _typed(value: bytes, depth: int) -> Decoded:
    tag = value[:1]
    if tag in _NESTED:
        consumed, item = _NESTED[tag](value[1:], depth + 1)
        return consumed + 1, item
    try:
        consumed, item = decode.TABLE_MAPPING[tag](value[1:])
    except (KeyError, ValueError, ArithmeticError):
        return 0, None  # a type nobody knows: how long it is, nobody knows either
    return consumed + 1, item


_NESTED: dict[bytes, Callable[[bytes, int], Decoded]] = {b"F": table, b"A": array}


def install() -> None:
    """Make the library use these decoders; for the whole process, idempotent."""
    decode.METHODS.update(
        timestamp=timestamp, shortstr=short_string, longstr=long_string, table=table, array=array
    )
    decode.TABLE_MAPPING.update({b"T": timestamp, b"S": long_string, b"F": table, b"A": array})
