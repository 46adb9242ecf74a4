"""Publishes hand-made property bytes, as clients in other languages send them."""

import asyncio
import struct
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

LIMIT_SECONDS = 10.0
FRAME_BYTES = 65_536  # fits into the frames of every broker

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_FLAGS = {
    "content_type": 15,
    "content_encoding": 14,
    "headers": 13,
    "delivery_mode": 12,
    "priority": 11,
    "correlation_id": 10,
    "reply_to": 9,
    "expiration": 8,
    "message_id": 7,
    "timestamp": 6,
    "type": 5,
    "user_id": 4,
    "app_id": 3,
}


class Refused(RuntimeError):  # noqa: N818 - reads as what the broker did
    """The broker closed the channel or the connection; the message is what it said."""


def short(value: bytes) -> bytes:
    """A short string: one byte of length."""
    return bytes([len(value)]) + value


def long(value: bytes) -> bytes:
    """A long string, or the inside of a table or array: four bytes of length."""
    return struct.pack(">I", len(value)) + value


def table(*entries: tuple[bytes, bytes]) -> bytes:
    """A field table of (key, type octet and value) pairs."""
    return long(b"".join(short(key) + value for key, value in entries))


def properties(**values: bytes) -> bytes:
    """Flags and property list; each value is its bytes on the wire."""
    unknown = values.keys() - _FLAGS.keys()
    if unknown:
        raise ValueError(f"no such properties: {sorted(unknown)}")
    flags = sum(1 << _FLAGS[name] for name in values)
    return struct.pack(">H", flags) + b"".join(values[name] for name in _FLAGS if name in values)


@dataclass(slots=True)
class _Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def method(self, channel: int, class_id: int, method_id: int, arguments: bytes) -> None:
        payload = struct.pack(">HH", class_id, method_id) + arguments
        self.frame(_METHOD, channel, payload)

    def frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.writer.write(struct.pack(">BHI", kind, channel, len(payload)) + payload + _END)

    async def expect(self, class_id: int, method_id: int) -> bytes:
        """Read up to the method that is waited for; its arguments."""
        while True:
            kind, _, size = struct.unpack(">BHI", await self.reader.readexactly(7))
            payload = (await self.reader.readexactly(size + 1))[:-1]
            if kind != _METHOD:
                continue
            found = struct.unpack(">HH", payload[:4])
            if found == (class_id, method_id):
                return payload[4:]
            if found in ((10, 50), (20, 40)):
                raise Refused(payload[7 : 7 + payload[6]].decode(errors="replace"))

    async def login(self, user: str, password: str, vhost: str) -> None:
        self.writer.write(b"AMQP\x00\x00\x09\x01")
        await self.expect(10, 10)
        plain = long(f"\0{user}\0{password}".encode())
        self.method(0, 10, 11, table() + short(b"PLAIN") + plain + short(b"en_US"))
        tune = await self.expect(10, 30)
        self.method(0, 10, 31, tune[:6] + b"\0\0")
        self.method(0, 10, 40, short(vhost.encode()) + b"\0\0")
        await self.expect(10, 41)
        self.method(1, 20, 10, b"\0")
        await self.expect(20, 11)
        self.method(1, 85, 10, b"\0")
        await self.expect(85, 11)


async def publish_raw(
    url: str, routing_key: bytes, body: bytes, property_bytes: bytes, *, exchange: bytes = b""
) -> None:
    """Publish one message and wait for its confirm. Raises: Refused."""
    parts = urlsplit(url)
    async with asyncio.timeout(LIMIT_SECONDS):
        wire = _Wire(*await asyncio.open_connection(parts.hostname, parts.port or 5672))
        try:
            await wire.login(
                unquote(parts.username or "guest"),
                unquote(parts.password or "guest"),
                unquote(parts.path[1:]) or "/",
            )
            wire.method(1, 60, 40, b"\0\0" + short(exchange) + short(routing_key) + b"\0")
            wire.frame(_HEADER, 1, struct.pack(">HHQ", 60, 0, len(body)) + property_bytes)
            for start in range(0, len(body), FRAME_BYTES):
                wire.frame(_BODY, 1, body[start : start + FRAME_BYTES])
            await wire.expect(60, 80)
            wire.method(0, 10, 50, struct.pack(">H", 200) + short(b"done") + b"\0\0\0\0")
            await wire.expect(10, 51)
        finally:
            wire.writer.close()
            await wire.writer.wait_closed()
