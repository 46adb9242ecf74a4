"""Versions: Major.Minor of protocol and envelope, and `name.vN` of payload schemas."""

import re
from collections.abc import Iterable, Sequence

PROTOCOL_VERSIONS = ("1.0",)
SCHEMA_VERSIONS = ("1.0",)

_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.[0-9]{1,9})?")
_SCHEMA = re.compile(r"(.+)\.v([0-9]{1,9})")


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


def parse_payload_schema(name: str) -> tuple[str, int]:
    """Return (name, version) of a payload schema; without `.vN` the version is 1.

    >>> parse_payload_schema("quality_review_result.v2"), parse_payload_schema("note")
    (('quality_review_result', 2), ('note', 1))
    """
    match = _SCHEMA.fullmatch(name)
    return (name, 1) if match is None else (match[1], int(match[2]))


def accepts_payload_schema(
    have: str, compatible_with: Iterable[str], *, accepted: Iterable[str]
) -> bool:
    """Return whether a payload of schema `have` may be read as one of `accepted`.

    Versions of a payload schema are whole numbers without an order of compatibility: a
    newer one is readable only where its writer says so in `compatible_with`.

    >>> accepts_payload_schema("review.v2", ["review.v1"], accepted=["review.v1"])
    True
    >>> accepts_payload_schema("review.v2", [], accepted=["review.v1"])
    False
    """
    readable = {parse_payload_schema(name) for name in accepted}
    return any(parse_payload_schema(name) in readable for name in (have, *compatible_with))
