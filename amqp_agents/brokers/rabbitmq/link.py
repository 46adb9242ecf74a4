"""One way to RabbitMQ: a connection, made again after every loss."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiormq.abc import AbstractChannel
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from yarl import URL

from amqp_agents.brokers.rabbitmq.address import Address, host_and_port
from amqp_agents.brokers.rabbitmq.faults import (
    UNEXPECTED,
    ConnectionLost,
    ConnectRefused,
    backoff_seconds,
    connect_failure,
    tell_if_it_dies,
)
from amqp_agents.brokers.rabbitmq.session import Session, open_session
from amqp_agents.config import Settings
from amqp_agents.errors import BrokerConnectionError
from amqp_agents.observability import Event, log_event

T = TypeVar("T")

log = logging.getLogger(__name__)

BACKOFF_SECONDS, BACKOFF_CAP_SECONDS = 0.2, 10.0
STEADY_SECONDS = 5.0  # a connection that lived so long is no part of a series of losses


class Link:
    """Keeps one connection up: backoff with jitter between attempts, hosts in random order.

    `failure` is why the last attempt failed; None once connected. A link that RabbitMQ refuses
    before it was ever connected gives up, until `open` is called again: the login or the vhost
    is wrong. Later it keeps trying, whatever the answer.
    """

    def __init__(self, address: Address, settings: Settings, *, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.failure: BrokerConnectionError | None = None
        self._address, self._settings = address, settings
        self._session: Session | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._refused: ConnectRefused | None = None
        self._was_up = False

    @property
    def live(self) -> Session | None:
        """The connection, if there is one now."""
        return self._session

    def open(self) -> None:
        """Begin to connect, and keep at it; idempotent."""
        if self._task is None or self._refused is not None:
            self._changed.clear()
            self._refused, self._was_up = None, False
            self._task = asyncio.create_task(self._supervise(), name=f"link {self.name}")
            tell_if_it_dies(self._task)

    async def session(self) -> Session:
        """Wait for a connection. Raises: BrokerConnectionError if the link is closed or refused."""
        while self._session is None:
            if self._task is None:
                raise BrokerConnectionError("the broker is closed (or connect was not called)")
            if self._refused is not None:
                raise self._refused
            await self._changed.wait()
        return self._session

    async def session_soon(self) -> Session:
        """Wait for a connection, for no longer than making one may take.

        Raises: BrokerConnectionError with the reason.
        """
        limit = self._settings.connect_timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return await self.session()
        except TimeoutError:
            raise self.unreachable(limit) from None

    async def call(self, work: Callable[[AbstractChannel], Coroutine[Any, Any, T]]) -> T:
        """Run one call, as `Session.call`, within the time a connection and an answer take."""
        return await (await self.session_soon()).call(work)

    def unreachable(self, seconds: float) -> BrokerConnectionError:
        """Say why there is no connection, and what mends it."""
        return self.failure or BrokerConnectionError(
            f"cannot reach RabbitMQ at {self._address.hosts} (no answer within {seconds:g} s): "
            "is RabbitMQ running, and the network open? set AMQP_AGENTS_URL"
        )

    async def close(self) -> None:
        """End the connection; idempotent, and `open` starts again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        session, self._session = self._session, None
        self._changed.set()
        if session is not None:
            await session.close()

    async def _supervise(self) -> None:
        losses = 0
        while True:
            try:
                session = await self._connect()
            except ConnectRefused as error:
                self.failure = self._refused = error
                self._changed.set()
                return
            since = time.monotonic()
            try:
                await self._hold(session)
            except UNEXPECTED as error:
                self._lose(session, error)
                session.abandon()
            losses = 0 if time.monotonic() - since > STEADY_SECONDS else losses + 1
            await asyncio.sleep(backoff_seconds(losses, 0.05, 2.0))

    async def _hold(self, session: Session) -> None:
        version = session.version_text
        log_event(log, Event.CONNECTED, link=self.name, epoch=session.epoch, version=version)
        self.failure, self._session, self._was_up = None, session, True
        self._changed.set()
        await session.lost.wait()
        self._lose(session)
        await session.close()

    def _lose(self, session: Session, unexpected: BaseException | None = None) -> None:
        self._session = None
        self._changed.clear()
        reason = "" if unexpected is None else f": {type(unexpected).__name__}"
        self.failure = BrokerConnectionError(
            f"the connection to RabbitMQ at {self._address.hosts} was lost{reason}"
        )
        log_event(
            log,
            Event.CONNECTION_LOST,
            error=unexpected,
            link=self.name,
            epoch=session.epoch,
            reason=self.failure,
        )

    async def _connect(self) -> Session:
        attempts = AsyncRetrying(
            wait=_pause_seconds,
            retry=retry_if_exception(self._worth_trying_again),
            before_sleep=self._note_failure,
        )
        session: Session = await attempts(self._connect_to_any)
        return session

    def _worth_trying_again(self, error: BaseException) -> bool:
        if isinstance(error, ConnectRefused):
            return self._was_up
        return isinstance(error, BrokerConnectionError)

    async def _connect_to_any(self) -> Session:
        failure: BrokerConnectionError | None = None
        for url in self._address.shuffled():
            try:
                return await self._open(url)
            except BrokerConnectionError as error:
                # What a broker says tells more than that another one is not there.
                failure = error if isinstance(error, ConnectRefused) else failure or error
        assert failure is not None  # noqa: S101 - an address has at least one URL
        raise failure

    async def _open(self, url: URL) -> Session:
        if "heartbeat" not in url.query:
            url = url.update_query(heartbeat=self._settings.heartbeat_seconds)
        limit = self._settings.connect_timeout_seconds
        try:
            session = await open_session(
                url, name=self.name, epoch=self.epoch + 1, timeout_seconds=limit
            )
        except (ConnectionLost, TimeoutError) as error:
            cause = error.__cause__ if isinstance(error, ConnectionLost) else error
            raise connect_failure(cause or error, url, vhost=self._address.vhost) from None
        except UNEXPECTED as error:
            # Its text may hold the URL with the password, so only its kind is told.
            raise BrokerConnectionError(
                f"cannot connect to RabbitMQ at {host_and_port(url)}: "
                f"the client failed with {type(error).__name__}"
            ) from error
        self.epoch = session.epoch
        return session

    def _note_failure(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        pause = state.next_action.sleep if state.next_action else 0.0
        if isinstance(error, BrokerConnectionError):
            self.failure = error
        log_event(
            log,
            Event.CONNECT_FAILED,
            error=error.__cause__ if error else None,
            link=self.name,
            attempt=state.attempt_number,
            retry_in=f"{pause:.1f}s",
            reason=error,
        )


def _pause_seconds(state: RetryCallState) -> float:
    return backoff_seconds(state.attempt_number - 1, BACKOFF_SECONDS, BACKOFF_CAP_SECONDS)
