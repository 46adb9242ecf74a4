"""Asking: from a request to its correlated answer, before a deadline."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from amqp_agents.brokers.base import Broker, Lease, Replies
from amqp_agents.context import MAX_DEPTH, Target, inherited, payload_dict, written
from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    BrokerError,
    CircuitOpenError,
    ConfigurationError,
    InvalidPayloadError,
    RequestTimeoutError,
)
from amqp_agents.handling import validation_text
from amqp_agents.observability import Telemetry
from amqp_agents.protocol import AgentMessage, AgentRef, MessageType, WireLimits, decode
from amqp_agents.protocol.error_payload import error_of, read_error_payload
from amqp_agents.publisher import AsyncPublisher
from amqp_agents.routing.attempt import Attempt
from amqp_agents.routing.breaker_state import BreakerPolicy
from amqp_agents.routing.breakers import Breakers, Moved
from amqp_agents.topology.names import checked_agent_id

# The publish gives up a moment before the call does, so that the caller is told whether the
# request was ever sent; the moment keeps any time limit within 5 %.
GRACE_SHARE, MAX_GRACE_SECONDS = 0.05, 0.1

# Every call ends by its own time limit, so that a probe always reports.
ASKING_POLICY = BreakerPolicy(probe_seconds=10**9)

OnLateReply = Callable[[AgentMessage], None]


class Requester:
    """Sends requests and matches what comes back; one per process and broker.

    `pending` is empty whenever nobody waits: a call that ends in any way leaves it. An agent that
    keeps failing is not asked for a while.
    """

    def __init__(
        self,
        broker: Broker,
        publisher: AsyncPublisher,
        *,
        telemetry: Telemetry,
        limits: WireLimits,
        on_late_reply: OnLateReply | None = None,
    ) -> None:
        self.instance = uuid4().hex
        self.pending: dict[str, asyncio.Future[AgentMessage]] = {}
        self._correlated: dict[str, str] = {}
        self._broker, self._publisher, self._telemetry = broker, publisher, telemetry
        self._limits, self._on_late_reply = limits, on_late_reply
        self._breakers = Breakers(ASKING_POLICY, blame=lambda error: None)
        self._replies: Replies | None = None
        self._acks: set[asyncio.Task[bool]] = set()

    async def open(self, *, direct: bool = False) -> None:
        """Make the reply queue and listen on it."""
        self._replies = await self._broker.open_replies(
            self.instance, self._on_reply, direct=direct
        )

    async def close(self) -> None:
        """Stop listening; whoever still waits gets a RequestTimeoutError at its limit."""
        if self._acks:
            await asyncio.wait(set(self._acks), timeout=5.0)
        if self._replies is not None:
            await self._replies.close()
            self._replies = None

    async def send(self, message: AgentMessage, *, depth: int) -> None:
        """Publish a message that asks for no answer."""
        await self._publisher.publish(message, depth=depth)

    async def exchange(
        self, message: AgentMessage, *, timeout_seconds: float, depth: int = 0
    ) -> AgentMessage:
        """Publish a request and return the message that answers it.

        Raises: UnroutableMessageError at once if the agent has no queue, CircuitOpenError at once
            if it failed too often, RequestTimeoutError, BrokerConnectionError or
            OutcomeUnknownError if it could not be sent in time.
        """
        if self._replies is None:
            raise ConfigurationError("this client is closed; open it with 'async with'")
        if timeout_seconds <= 0:
            raise RequestTimeoutError(str(message.recipient), timeout_seconds=timeout_seconds)
        message = message.model_copy(update={"reply_to": self._replies.address})
        target = message.recipient.agent_id if message.recipient is not None else ""
        with Attempt(
            self._breakers, target, time=self._broker.clock.time, on_moved=self._moved
        ) as attempt:
            if not attempt.granted:
                wait = math.ceil(attempt.retry_after_seconds)
                raise CircuitOpenError(
                    f"agent {target!r} failed too often; ask again in {wait} s",
                    suggested_retry_after=wait,
                )
            answer = await self._exchanged(message, self._replies, timeout_seconds, depth)
            if answer.message_type is MessageType.ERROR:
                attempt.error = error_in(answer)
            return answer

    def _moved(self, moved: tuple[Moved, ...]) -> None:
        for each in moved:
            self._telemetry.target_moved(each)

    async def _exchanged(
        self, message: AgentMessage, replies: Replies, timeout_seconds: float, depth: int
    ) -> AgentMessage:
        grace = min(MAX_GRACE_SECONDS, timeout_seconds * GRACE_SHARE)
        limit = self._broker.clock.timeout(timeout_seconds + grace)
        with self._expected(message) as answer:
            try:
                async with limit:
                    await self._publisher.publish(
                        message, depth=depth, timeout_seconds=timeout_seconds, via=replies
                    )
                    return await answer
            except (BrokerError, TimeoutError) as error:
                if answer.done() and not answer.cancelled():  # only the confirm did not come
                    return answer.result()
                if not limit.expired():
                    raise
                raise RequestTimeoutError(
                    str(message.recipient), timeout_seconds=timeout_seconds
                ) from error

    @contextmanager
    def _expected(self, message: AgentMessage) -> Iterator[asyncio.Future[AgentMessage]]:
        """The answer to a message that is about to be sent, for as long as somebody waits."""
        name, correlation = message.message_id, message.correlation_id
        if name in self.pending:
            raise ConfigurationError(
                f"message {name} waits for its answer already; give each request a message_id"
            )
        answer = self.pending[name] = asyncio.get_running_loop().create_future()
        self._correlated[correlation] = name
        try:
            yield answer
        finally:
            del self.pending[name]
            if self._correlated.get(correlation) == name:  # else a later request's by now
                del self._correlated[correlation]

    async def ask(  # noqa: PLR0913 - the parts of one typed call
        self,
        target: Target[Any, Any] | str,
        payload: BaseModel | Mapping[str, Any],
        *,
        timeout_seconds: float,
        sender: AgentRef,
        intent: str | None = None,
        returns: type[BaseModel] | None = None,
        parent: AgentMessage | None = None,
        depth: int = 0,
    ) -> Any:
        """Send a request and return its answer as the type the caller named.

        Raises: as `exchange`; AgentCommunicationError (NonRetryableError) for an error answer;
            InvalidPayloadError if the payload is not the target's model, or the answer is not
            what was promised.
        """
        if depth > MAX_DEPTH:
            raise InvalidPayloadError(
                f"{depth} hops deep, at most {MAX_DEPTH}: do agents ask each other in a circle?"
            )
        if not math.isfinite(timeout_seconds):
            raise ConfigurationError(f"timeout_seconds must be a number, not {timeout_seconds!r}")
        name, intent, wanted = _addressed(target, payload, intent=intent, returns=returns)
        request = written(
            AgentMessage,
            sender=sender,
            recipient=name,
            message_type=MessageType.REQUEST,
            intent=intent,
            payload=payload_dict(payload),
            deadline_ms=max(1, math.ceil(timeout_seconds * 1000)),
            ttl=max(1, math.ceil(timeout_seconds)),
            **inherited(parent),
        )
        answer = await self.exchange(request, timeout_seconds=timeout_seconds, depth=depth)
        return result_of(answer, wanted)

    def _on_reply(self, lease: Lease) -> None:
        try:
            message = decode(lease.delivery.body, lease.delivery.properties, limits=self._limits)
        except AgentError as error:
            self._telemetry.reply_late("?", f"unreadable: {error}")
        else:
            self._deliver(message)
        ack = asyncio.create_task(lease.ack())
        self._acks.add(ack)
        ack.add_done_callback(self._acks.discard)

    def _deliver(self, message: AgentMessage) -> None:
        parent = message.causality.parent_message_id or ""
        key = parent if parent in self.pending else self._correlated.get(message.correlation_id)
        waiting = self.pending.get(key) if key is not None else None
        if waiting is None or waiting.done():
            self._telemetry.reply_late(message.message_id, "nobody waits for it any more")
            if self._on_late_reply is not None:
                # In a turn of its own: what a hook raises must not reach the reply queue.
                asyncio.get_running_loop().call_soon(self._on_late_reply, message)
            return
        waiting.set_result(message)


def result_of(answer: AgentMessage, wanted: Any) -> Any:
    """Return the answer as `wanted`: a model, dict, or None for "no content".

    Raises: the error the agent answered with, typed; InvalidPayloadError.
    """
    if answer.message_type is MessageType.ERROR:
        raise error_in(answer)
    if wanted is None:
        return None
    if wanted is dict:
        return answer.payload
    try:
        return cast(type[BaseModel], wanted).model_validate(answer.payload)
    except ValidationError as error:
        raise InvalidPayloadError(
            f"the answer of {answer.sender} is not a {wanted.__name__}: {validation_text(error)}"
        ) from None


def error_in(answer: AgentMessage) -> AgentCommunicationError:
    """Return the typed error an error message carries, also one that is not well made."""
    return error_of(read_error_payload(answer.payload, failed_agent=answer.sender.agent_id))


def _addressed(
    target: Target[Any, Any] | str,
    payload: object,
    *,
    intent: str | None,
    returns: type[BaseModel] | None,
) -> tuple[str, str | None, Any]:
    if isinstance(target, str):
        return checked_agent_id(target), intent, dict if returns is None else returns
    if not isinstance(target, Target):
        raise ConfigurationError(
            f"a request goes to a decorated handler or to an agent's name, not to {target!r}"
        )
    if not isinstance(payload, target.input_type):
        raise InvalidPayloadError(
            f"{target!r} takes a {target.input_type.__name__}, not a {type(payload).__name__}"
        )
    return target.agent_name, target.intent, target.output_type
