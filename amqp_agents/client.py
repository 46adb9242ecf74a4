"""Calling agents from outside: `Client` on the event loop, `SyncClient` from blocking code."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from pydantic import BaseModel

from amqp_agents.brokers.base import Broker
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.config import Settings, load_settings
from amqp_agents.context import In, Model, Out, Outgoing, Target, compose_message
from amqp_agents.errors import BrokerConnectionError, ConfigurationError
from amqp_agents.observability import Telemetry
from amqp_agents.protocol import AgentMessage, AgentRef, MessageType, RecipientMode, WireLimits
from amqp_agents.publisher import AsyncPublisher
from amqp_agents.requester import OnLateReply, Requester, error_in
from amqp_agents.topology.names import checked_agent_id

T = TypeVar("T")


class Client:
    """Asks agents and publishes to them; made by `app.client()`, `app.test()` or `connect()`.

    Everything it sends carries its name as the sender.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        name: str = "client",
        settings: Settings | None = None,
        telemetry: Telemetry | None = None,
        on_late_reply: OnLateReply | None = None,
    ) -> None:
        settings = load_settings() if settings is None else settings
        self.ref = AgentRef(name)
        self.telemetry = (telemetry or Telemetry()).on_clock(broker.clock)
        self.broker = broker
        self.publisher = AsyncPublisher(broker, settings=settings, telemetry=self.telemetry)
        self.requester = Requester(
            broker,
            self.publisher,
            telemetry=self.telemetry,
            limits=WireLimits(max_body_bytes=settings.max_body_bytes),
            on_late_reply=on_late_reply,
        )

    async def open(self, *, direct: bool = False) -> Self:
        """Listen for replies; `direct` by the broker's direct reply-to."""
        await self.requester.open(direct=direct)
        return self

    async def close(self) -> None:
        """Stop listening for replies; the broker stays open."""
        await self.requester.close()

    @overload
    async def request(
        self, target: Target[In, Out], payload: In, *, timeout_seconds: float = 30.0
    ) -> Out: ...
    @overload
    async def request(
        self,
        target: str,
        payload: BaseModel | Mapping[str, Any],
        *,
        intent: str | None = None,
        returns: type[Model],
        timeout_seconds: float = 30.0,
    ) -> Model: ...
    @overload
    async def request(
        self,
        target: str,
        payload: BaseModel | Mapping[str, Any],
        *,
        intent: str | None = None,
        timeout_seconds: float = 30.0,
    ) -> dict[str, Any]: ...
    async def request(
        self,
        target: Target[Any, Any] | str,
        payload: BaseModel | Mapping[str, Any],
        *,
        intent: str | None = None,
        returns: type[BaseModel] | None = None,
        timeout_seconds: float = 30.0,
    ) -> Any:
        """Ask an agent and return its answer: typed by the handler, or by `returns`, or a dict.

        The time limit holds whatever happens to the broker.

        Raises: UnroutableMessageError at once if nobody declared the agent;
            AgentCommunicationError with the code the agent answered (NonRetryableError if asking
            again cannot help); RequestTimeoutError; BrokerConnectionError or OutcomeUnknownError
            if the request could not be sent in time; InvalidPayloadError.
        """
        return await self.requester.ask(
            target,
            payload,
            intent=intent,
            returns=returns,
            timeout_seconds=timeout_seconds,
            sender=self.ref,
        )

    async def exchange(
        self, message: AgentMessage, *, timeout_seconds: float = 30.0
    ) -> AgentMessage:
        """Send an envelope written by hand and return the envelope that answers it.

        Raises: as `request`, except that an error answer is returned, not raised.
        """
        return await self.requester.exchange(message, timeout_seconds=timeout_seconds)

    async def publish(self, message: Outgoing[Any] | AgentMessage) -> None:
        """Publish an event, a broadcast or an addressed message; return once it is confirmed.

        Raises: as `AsyncPublisher.publish`.
        """
        if isinstance(message, Outgoing):
            message = compose_message(message, sender=self.ref)
        await self.publisher.publish(message)

    async def advance(self, seconds: float) -> None:
        """Let time pass: at once on the memory broker, by waiting on RabbitMQ."""
        await self.broker.clock.advance(seconds)


@asynccontextmanager
async def connect(
    url: str | None = None,
    *,
    name: str = "client",
    direct: bool = False,
    settings: Settings | None = None,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[Client]:
    """Connect to RabbitMQ (`url`, else `AMQP_AGENTS_URL`) and yield a client.

    `direct` takes answers by the broker's direct reply-to: faster, for short calls; an answer
    is lost when the connection is.

    Raises: BrokerConnectionError that names the mend, TopologyMissingError if nothing was
        declared in the vhost yet.
    """
    if url is not None and settings is not None:
        raise ConfigurationError("give connect() a url or settings (which have one), not both")
    settings = load_settings(url=url) if settings is None else settings
    broker = RabbitMQBroker(settings, name=name)
    try:
        await broker.connect(timeout_seconds=settings.connect_timeout_seconds)
        client = Client(broker, name=name, settings=settings, telemetry=telemetry)
        try:
            yield await client.open(direct=direct)
        finally:
            await client.close()
    finally:
        await broker.close()


class SyncClient:
    """Asks agents from blocking code: a script, a notebook, a web worker thread.

    Runs an event loop in a thread of its own; safe to share between threads. Not for use on
    an event loop: there, use `Client`.
    """

    def __init__(self, url: str | None = None, *, name: str = "client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"sync-client-{name}", daemon=True
        )
        self._thread.start()
        try:
            self._connection = connect(url, name=name)
            self._client = self._run(self._connection.__aenter__())
        except BaseException:
            self._stop()
            raise

    def request(
        self, target_agent: str, message: AgentMessage, timeout: float = 30.0
    ) -> AgentMessage:
        """Send `message` to `target_agent` and block until its answer is here.

        Units:  timeout in seconds
        Raises: AgentCommunicationError if the answer is an error; else as `Client.request`.
        """
        addressed = message.model_copy(
            update={
                "recipient": AgentRef(checked_agent_id(target_agent)),
                "recipient_mode": RecipientMode.DIRECT,
                "message_type": MessageType.REQUEST,
                "requires_response": True,
                "deadline_ms": message.deadline_ms or max(1, round(timeout * 1000)),
            }
        )
        answer = self._run(self._client.exchange(addressed, timeout_seconds=timeout))
        if answer.message_type is MessageType.ERROR:
            raise error_in(answer)
        return answer

    def publish(self, message: Outgoing[Any] | AgentMessage) -> None:
        """Publish and block until the broker has confirmed it."""
        self._run(self._client.publish(message))

    def close(self) -> None:
        """End the connection and the thread; idempotent."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._connection.__aexit__(None, None, None))
        finally:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise ConfigurationError("this client is closed; make a new SyncClient")
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except CancelledError:
            raise BrokerConnectionError("the client was closed while it waited") from None

    async def _end_calls(self) -> None:
        """Wake the threads that still wait for a call."""
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end_calls(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop.close()
