"""Which payloads a subscriber wants, and which of their fields it gets."""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "_gte": operator.ge,
    "_lte": operator.le,
    "_gt": operator.gt,
    "_lt": operator.lt,
}


def matches(where: Mapping[str, Any], payload: Mapping[str, Any]) -> bool:
    """Return whether `payload` meets every condition of `where`.

    A value must be equal, one of a list, or, with `_gte`, `_lte`, `_gt` or `_lt` behind the
    field's name, compare that way. A field the payload lacks meets no condition, and values
    of different kinds never compare: a filter is never met by accident.

    >>> where = {"risk_level": ["high"], "amount_gte": 10000}
    >>> matches(where, {"risk_level": "high", "amount": 12000})
    True
    >>> matches(where, {"risk_level": "high", "amount": "12000"})
    False
    >>> matches({}, {"anything": 1})
    True
    """
    return all(_meets(name, wanted, payload) for name, wanted in where.items())


def _meets(name: str, wanted: Any, payload: Mapping[str, Any]) -> bool:
    for suffix, compare in _COMPARISONS.items():
        if name.endswith(suffix):
            found = payload.get(name.removesuffix(suffix))
            return _comparable(found, wanted) and compare(found, wanted)
    if name not in payload:
        return False
    found = payload[name]
    if isinstance(wanted, list | tuple | set | frozenset):
        return any(_equal(found, one) for one in wanted)
    return _equal(found, wanted)


def _equal(found: Any, wanted: Any) -> bool:
    # In Python True == 1; in a payload they are different values.
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def _comparable(found: Any, wanted: Any) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return False
    numbers = isinstance(found, int | float) and isinstance(wanted, int | float)
    return numbers or (isinstance(found, str) and isinstance(wanted, str))


def project(payload: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return only the named fields; those the payload lacks stay absent.

    >>> project({"amount": 5, "phone": "…"}, ["amount", "risk_level"])
    {'amount': 5}
    """
    return {name: payload[name] for name in fields if name in payload}
