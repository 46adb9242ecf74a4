"""Bodies to parsed JSON: strict about JSON, tolerant of how it was packed."""

import codecs
import json
import zlib
from collections.abc import Sequence
from typing import Any

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.properties import Properties

_CHARSETS = frozenset(
    f"utf-{width}{order}" for width in (16, 32) for order in ("", "-le", "-be")
) | {"utf-8", "ascii", "iso8859-1"}
_UNPACKED = frozenset({"", "identity", "utf-8", "utf8", "binary"})


def read_json(body: bytes, properties: Properties, *, max_bytes: int) -> Any:
    """Return the parsed body; `max_bytes` bounds what a compressed one may grow to.

    Raises: InvalidPayloadError in one sentence.
    """
    charset = _charset(properties.content_type)
    plain = _unpacked(body, properties.content_encoding, max_bytes=max_bytes)
    return _parsed(_text(plain, charset))


def _charset(content_type: str | None) -> str | None:
    """Return the named charset; None to detect it. Refuses what is not JSON."""
    if not content_type or not content_type.strip():
        return None
    kind, *parameters = (part.strip() for part in content_type.split(";"))
    kind = kind.lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise InvalidPayloadError(f"content type {kind[:80]!r} is not read; send application/json")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return _known_charset(value.strip().strip("'\""))
    return None


def _known_charset(name: str) -> str | None:
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        known = ""
    if known not in _CHARSETS:
        raise InvalidPayloadError(f"charset {name[:40]!r} is not read; send UTF-8")
    return None if known in ("utf-8", "ascii") else known


def _unpacked(body: bytes, encoding: str | None, *, max_bytes: int) -> bytes:
    name = (encoding or "").strip().lower()
    if name in _UNPACKED:
        return body
    if name in ("gzip", "x-gzip"):
        return _inflated(body, zlib.MAX_WBITS | 16, max_bytes=max_bytes)
    if name == "deflate":
        # Named after zlib's format, yet some senders write the bare stream inside it.
        zlib_header = len(body) >= 2 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
        wbits = zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS
        return _inflated(body, wbits, max_bytes=max_bytes)
    raise InvalidPayloadError(
        f"content_encoding {name[:40]!r} is not read; send none, gzip or deflate"
    )


def _inflated(body: bytes, wbits: int, *, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(wbits)
    try:
        plain = stream.decompress(body, max_bytes + 1)
    except zlib.error:
        raise InvalidPayloadError("the body is not compressed as content_encoding says") from None
    if len(plain) > max_bytes:
        raise InvalidPayloadError(
            f"the body unpacks to more than {max_bytes} bytes (max_body_bytes)"
        )
    if not stream.eof or stream.unused_data:
        raise InvalidPayloadError("the compressed body is cut off, or goes on after its end")
    return plain


def _text(plain: bytes, charset: str | None) -> str:
    if not plain.strip():
        raise InvalidPayloadError("the body is empty; expected a JSON object, the envelope")
    try:
        return plain.decode(charset or json.detect_encoding(plain)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InvalidPayloadError(
            f"the body is not text in {error.encoding} (byte {error.start})"
        ) from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise InvalidPayloadError(
            f"the body is not JSON: {error.msg} at character {error.pos}"
        ) from None
    except RecursionError:
        raise InvalidPayloadError("the body nests too deep") from None
    except ValueError:
        raise InvalidPayloadError("the body holds an integer of too many digits") from None


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidPayloadError("the body names one key twice in an object")
    return found
