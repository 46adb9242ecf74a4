"""What JSON can carry: nothing is converted silently on its way to the wire."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from amqp_agents.errors import InvalidPayloadError

MAX_DEPTH = 128
"""How deep objects and lists may nest; every JSON reader copes with this much."""
MAX_INTEGER_BITS = 4096

_FIRST_BEYOND_SORTING = "\ud800"  # from here on, UTF-16 order and code point order part


class _Refused(Exception):  # noqa: N818 - a signal that collects its place on its way up
    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.steps: list[str | int] = []


def check_json(value: Any, *, at: str) -> bool:
    """Let only what JSON can carry pass; return whether JSON with sorted keys is canonical.

    It is unless a float is written otherwise by RFC 8785 than by Python (1.0, 1e-07), or a
    key is not in the order of code points.

    Raises: InvalidPayloadError naming the place below `at`.

    >>> check_json({"score": 0.5}, at="payload"), check_json({"score": 1.0}, at="payload")
    (True, False)
    >>> check_json({"scores": [1, 2, float("nan")]}, at="payload")
    Traceback (most recent call last):
        ...
    amqp_agents.errors.InvalidPayloadError: payload.scores[2] is nan, which JSON cannot carry
    """
    try:
        return _check(value, 0)
    except _Refused as refused:
        raise InvalidPayloadError(f"{_place(at, refused.steps)} {refused.reason}") from None


def check_kept(given: object, written: object, *, at: str) -> None:
    """Refuse what pydantic loses silently on its way to JSON: NaN to null, keys that become one.

    Raises: InvalidPayloadError naming the place below `at`.

    >>> check_kept({"score": float("inf")}, {"score": None}, at="payload")
    Traceback (most recent call last):
        ...
    amqp_agents.errors.InvalidPayloadError: payload.score is inf, which JSON cannot carry
    """
    try:
        _check_kept(given, written)
    except _Refused as refused:
        raise InvalidPayloadError(f"{_place(at, refused.steps)} {refused.reason}") from None


def _check_kept(given: object, written: object) -> None:
    if isinstance(given, float) and not math.isfinite(given):
        raise _Refused(f"is {given}, which JSON cannot carry")
    if isinstance(given, Mapping) and isinstance(written, dict):
        if len(given) > len(written):
            raise _Refused("has keys that are one and the same as JSON keys, which are text")
        pairs: Iterable[tuple[object, object]] = zip(given.values(), written.values(), strict=False)
        steps: Iterable[str | int] = map(str, written)
    elif isinstance(written, list) and isinstance(given, Iterable):
        pairs, steps = zip(given, written, strict=False), range(len(written))
    else:
        return
    for step, (before, after) in zip(steps, pairs, strict=False):
        try:
            _check_kept(before, after)
        except _Refused as refused:
            refused.steps.append(step)
            raise


def _check(value: object, depth: int) -> bool:
    if isinstance(value, str):
        return value.isascii() or _check_text(value)
    if isinstance(value, dict):
        return _check_object(value, depth + 1)
    if isinstance(value, list | tuple):
        return _check_list(value, depth + 1)
    if isinstance(value, float):
        return _check_float(value)
    if isinstance(value, int):
        return _check_integer(value)
    if value is None:
        return True
    raise _Refused(
        f"is a {type(value).__name__}, which JSON cannot carry; "
        "give text, numbers, booleans, None, lists and dicts"
    )


def _check_object(value: dict[Any, object], depth: int) -> bool:
    _check_depth(depth)
    plain = True
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Refused(
                f"has the key {repr(key)[:40]} of type {type(key).__name__}; JSON keys are text"
            )
        if not key.isascii():
            _check_text(key)
            plain = plain and max(key) < _FIRST_BEYOND_SORTING
        try:
            plain = _check(item, depth) and plain
        except _Refused as refused:
            refused.steps.append(key)
            raise
    return plain


def _check_list(value: list[object] | tuple[object, ...], depth: int) -> bool:
    _check_depth(depth)
    plain = True
    for index, item in enumerate(value):
        try:
            plain = _check(item, depth) and plain
        except _Refused as refused:
            refused.steps.append(index)
            raise
    return plain


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Refused(f"nests deeper than {MAX_DEPTH} levels")


def _check_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused("holds half a surrogate pair, which UTF-8 cannot carry") from None
    return True


def _check_float(value: float) -> bool:
    if not math.isfinite(value):
        raise _Refused(f"is {value}, which JSON cannot carry")
    return 1e-4 <= abs(value) < 1e15 and not value.is_integer()


def _check_integer(value: int) -> bool:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise _Refused(f"is an integer of more than {MAX_INTEGER_BITS} bits")
    return True


def _place(at: str, steps: list[str | int]) -> str:
    """Write a place as code would; long keys and long ways are cut."""
    place = at
    for step in reversed(steps):
        place += f"[{step}]" if isinstance(step, int) else f".{step[:64]}"
        if len(place) > 200:
            place = f"{place[:200]}…"
            break
    return place.removeprefix(".").encode("utf-8", "backslashreplace").decode() or "the body"
