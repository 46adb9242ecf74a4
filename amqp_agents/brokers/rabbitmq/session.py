"""One connection to RabbitMQ while it lasts."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import aio_pika
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from yarl import URL

from amqp_agents.brokers.rabbitmq.faults import (
    UNEXPECTED,
    ConnectionLost,
    answered,
    bounded,
    library_faults,
)

T = TypeVar("T")

CLOSE_SECONDS = 2.0


class _Socket(TransportFactory):
    """Makes the socket of one connection, and keeps hold of it: the library has no abort."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None

    async def create(
        self, url: URL, **kwargs: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, self._writer = await factory.create(url, **kwargs)
        return reader, self._writer

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class _Connection(aio_pika.Connection):
    """A plain connection whose socket can be aborted, and which does nothing when collected."""

    def __init__(self, url: URL, *, name: str) -> None:
        super().__init__(url, client_properties={"connection_name": name})
        self.socket = _Socket()
        self.kwargs["transport_factory"] = self.socket

    def __del__(self) -> None:
        """Leave it: the base class would start a task, or fail without a running loop."""


async def open_session(url: URL, *, name: str, epoch: int, timeout_seconds: float) -> "Session":
    """Connect and log in. Raises: ConnectionLost, caused by what the library says; TimeoutError."""
    connection = _Connection(url, name=name)
    try:
        with library_faults():
            await bounded(connection.connect(timeout=timeout_seconds), timeout_seconds + 1)
        return Session(connection, connection.socket, epoch=epoch)
    except BaseException:
        connection.socket.abort()
        raise


class Session:
    """One connection while it lasts; `epoch` tells it from the earlier ones of its link."""

    def __init__(self, connection: aio_pika.Connection, socket: _Socket, *, epoch: int) -> None:
        if connection.transport is None:
            raise ConnectionLost("the connection was lost while it was opened")
        self.epoch = epoch
        self.lost = asyncio.Event()
        self._pika, self._socket = connection, socket
        self._connection: AbstractConnection = connection.transport.connection
        self._connection.closing.add_done_callback(lambda _: self.lost.set())

    @property
    def version(self) -> tuple[int, int, int]:
        """The version of RabbitMQ, as far as it is numbers."""
        numbers = [int(part) for part in self.version_text.split(".") if part.isdigit()]
        major, minor, patch = [*numbers, 0, 0, 0][:3]
        return major, minor, patch

    @property
    def version_text(self) -> str:
        """The version of RabbitMQ without what a distribution appends."""
        return str(self._connection.server_properties.get("version", "")).split("-")[0]

    @property
    def cluster_name(self) -> str:
        """The name of the cluster, the same on all its nodes and in its management API."""
        return str(self._connection.server_properties.get("cluster_name", ""))

    @property
    def blocked(self) -> bool:
        """Whether RabbitMQ takes no publishes for now (memory or disk alarm)."""
        # A coroutine that would have to wait does not end at its first step.
        waiting = self._connection.ready()
        try:
            waiting.send(None)
        except StopIteration:
            return False
        waiting.close()
        return True

    async def unblocked(self) -> None:
        """Return once publishes are taken. Raises: ConnectionLost."""
        if not self.blocked:
            return
        waiting = asyncio.ensure_future(self._connection.ready())
        lost = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait({waiting, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            lost.cancel()
        if self.lost.is_set():
            raise ConnectionLost("the connection was lost while it was blocked")

    async def open_channel(self, *, confirms: bool = False) -> AbstractChannel:
        """Return a new channel. Raises: ConnectionLost."""
        return await answered(
            self._connection.channel(publisher_confirms=confirms, on_return_raises=True)
        )

    async def call(self, work: Callable[[AbstractChannel], Coroutine[Any, Any, T]]) -> T:
        """Run one call on a channel of its own: an error closes the channel it happens on.

        Raises: ConnectionLost; what the broker closes the channel with.
        """
        channel = await self.open_channel()
        try:
            return await answered(work(channel))
        finally:
            await close_channel(channel)

    async def close(self) -> None:
        """End the connection in good order, or at once if the other side does not answer."""
        try:
            with library_faults():
                await bounded(self._pika.close(), CLOSE_SECONDS)
        except (ConnectionLost, *UNEXPECTED):  # also TimeoutError; the connection is over anyway
            pass
        finally:
            self.abandon()
        await self._release_waiting()

    def abandon(self) -> None:
        """End the connection without a word."""
        self._socket.abort()
        self.lost.set()

    async def _release_waiting(self) -> None:
        """Wake every call that waits for room in the dead connection's queue.

        The queue holds ten frames; nobody empties it any more, and the library would let
        those calls wait for ever.
        """
        queue = self._connection.write_queue
        idle = 0
        while idle < 3:
            idle += 1
            while not queue.empty():
                queue.get_nowait()
                idle = 0
            await asyncio.sleep(0)


async def close_channel(channel: AbstractChannel) -> None:
    """Close the channel, in bounded time; what it held unsettled goes back to its queues."""
    if channel.is_closed:
        return
    with suppress(ConnectionLost):
        await answered(channel.close(), CLOSE_SECONDS)
