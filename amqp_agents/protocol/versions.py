"""Versions of protocol and envelope: Major.Minor."""

import re
from collections.abc import Sequence

PROTOCOL_VERSIONS = ("1.0",)
SCHEMA_VERSIONS = ("1.0",)

_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.[0-9]{1,9})?")


def parse_version(text: str) -> tuple[int, int]:
    """Return (major, minor); a missing minor is 0, a patch plays no part.

    Raises: ValueError.

    >>> parse_version("1") == parse_version("1.0") == parse_version("1.0.7")
    True
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"version {text[:40]!r} is not Major.Minor")
    return int(match[1]), int(match[2] or 0)


def accepts(have: str, accepted: Sequence[str]) -> bool:
    """Return whether a reader of the versions `accepted` can read `have`.

    The major decides: a higher minor only adds what an older reader may ignore.

    >>> accepts("1.4", ["1.0"]), accepts("2.0", ["1.0"]), accepts("one", ["1.0"])
    (True, False, False)
    """
    try:
        major, _ = parse_version(have)
    except ValueError:
        return False
    return major in {parse_version(version)[0] for version in accepted}
