"""A TCP proxy that breaks connections in the ways networks do."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from tests.nodes.ports import free_port

_CHUNK_BYTES = 65_536
_SLICES_PER_SECOND = 20
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(eq=False, slots=True)
class _Side:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        raw = self.writer.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.writer.transport.abort()


@dataclass(eq=False, slots=True)
class _Link:
    """One client connection; `broken` once bytes of it were discarded: it cannot be healed."""

    client: _Side
    broker: _Side | None
    broken: bool = False

    def sides(self) -> list[_Side]:
        return [side for side in (self.client, self.broker) if side is not None]


@dataclass(slots=True)
class Counters:
    """What went through the proxy; `faults` counts each fault by name."""

    connections: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    bytes_swallowed: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def count(self, direction: Literal["up", "down"], size: int) -> None:
        """Count bytes that were passed on."""
        if direction == "up":
            self.bytes_up += size
        else:
            self.bytes_down += size


class Proxy:
    """Stands before 127.0.0.1:`target_port`; `async with Proxy(node.ports.amqp) as proxy:`.

    A fault takes effect at once and stays until `heal`; `cut`, `reset` and `half_open` hit only the
    connections of that moment. Faults are plain calls and may follow each other.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.counters = Counters()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._swallow = False
        self._bytes_per_second: int | None = None
        self._flowing = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.port = free_port()
        self._flowing.set()
        self._listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_listening()
        self._reset(self._links)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def url(self, amqp_url: str) -> str:
        """The same URL, but through this proxy."""
        return through(amqp_url, self.port)

    def cut(self) -> None:
        """Close the connections in good order on both sides (FIN)."""
        self._fire("cut")
        for link in self._links:
            for side in link.sides():
                side.close()

    def reset(self) -> None:
        """Reset the connections on both sides (RST)."""
        self._fire("reset")
        self._reset(self._links)

    def half_open(self) -> None:
        """Close the client's side and hold the broker's open, discarding what comes from it."""
        self._fire("half_open")
        for link in self._links:
            link.broken = True
            link.client.close()

    def black_hole(self) -> None:
        """Swallow both directions, keep all open; new connections are accepted and swallowed."""
        self._fire("black_hole")
        self._swallow = True
        for link in self._links:
            link.broken = True

    def stall(self) -> None:
        """Hold both directions back; nothing is lost, and `heal` lets it through."""
        self._fire("stall")
        self._flowing.clear()

    def refuse(self) -> None:
        """Refuse new connections (nothing listens); those that exist go on."""
        self._fire("refuse")
        self._stop_listening()

    def slow(self, bytes_per_second: int) -> None:
        """Let through at most so many bytes a second in each direction of each connection."""
        self._fire("slow")
        self._bytes_per_second = bytes_per_second

    def inject(self, data: bytes) -> None:
        """Send bytes to every client as if the broker had."""
        self._fire("inject")
        for link in self._links:
            link.client.writer.write(data)

    def heal(self) -> None:
        """Work like a wire again; connections that lost bytes meanwhile are reset."""
        self._swallow = False
        self._bytes_per_second = None
        self._flowing.set()
        self._reset({link for link in self._links if link.broken})
        if self._listener is None:
            self._listen()

    def _fire(self, fault: str) -> None:
        self.counters.faults[fault] += 1

    def _reset(self, links: set[_Link]) -> None:
        for link in links:
            for side in link.sides():
                side.reset()

    def _listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)
        self._listener = listener

    def _stop_listening(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        self.counters.connections += 1
        self._spawn(self._serve(connection))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        client = _Side(*await asyncio.open_connection(sock=connection))
        link = _Link(client, broker=None, broken=self._swallow)
        self._links.add(link)
        try:
            if not link.broken:
                link.broker = _Side(*await asyncio.open_connection("127.0.0.1", self.target_port))
            await asyncio.gather(self._pump(link, "up"), self._pump(link, "down"))
        except OSError:
            client.reset()
        finally:
            self._links.discard(link)
            for side in link.sides():
                side.close()

    async def _pump(self, link: _Link, direction: Literal["up", "down"]) -> None:
        """Carry one direction until it ends; the end is passed on unless the link is broken."""
        ends = (link.client, link.broker) if direction == "up" else (link.broker, link.client)
        source, target = ends
        if source is None:
            return
        try:
            while data := await source.reader.read(_CHUNK_BYTES):
                await self._carry(link, direction, data)
        except OSError:
            link.broken = link.broken or self._swallow
        await self._flowing.wait()
        if target is not None and not (link.broken or self._swallow):
            target.close()

    async def _carry(self, link: _Link, direction: Literal["up", "down"], data: bytes) -> None:
        """Write `data` in slices, so that every fault takes effect within a slice."""
        target = link.broker if direction == "up" else link.client
        while data:
            await self._flowing.wait()
            pace = self._bytes_per_second
            size = len(data) if pace is None else max(1, pace // _SLICES_PER_SECOND)
            part, data = data[:size], data[size:]
            link.broken = link.broken or self._swallow
            if link.broken or target is None:
                self.counters.bytes_swallowed += len(part)
                continue
            self.counters.count(direction, len(part))
            target.writer.write(part)
            await target.writer.drain()
            if pace is not None:
                await asyncio.sleep(len(part) / pace)


def through(amqp_url: str, port: int) -> str:
    """The URL with 127.0.0.1:`port` in place of its host and port.

    >>> through("amqp://u:p%40@broker:5672/v?heartbeat=5", 7000)
    'amqp://u:p%40@127.0.0.1:7000/v?heartbeat=5'
    """
    parts = urlsplit(amqp_url)
    login, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{port}"))
