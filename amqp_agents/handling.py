"""From a delivery to the user's function and back: choose, validate, call, answer."""

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from amqp_agents.agent import Agent, BoundHandler
from amqp_agents.clock import Clock
from amqp_agents.context import Asking, Context, Outgoing, payload_dict, written
from amqp_agents.errors import (
    ConfigurationError,
    InvalidPayloadError,
    SchemaMismatchError,
    WrongResultError,
)
from amqp_agents.injection import RawMessage
from amqp_agents.outcome import Ack, Outcome
from amqp_agents.pipeline import Delivery, is_spread
from amqp_agents.protocol import CLOCK_HEADER, AgentMessage, MessageType
from amqp_agents.protocol.envelope import ReplyFields
from amqp_agents.protocol.selection import matches, project
from amqp_agents.publisher import DEPTH_HEADER

T = TypeVar("T")
AnyHandler = BoundHandler[Any, Any, Any, Any]


class AgentHandler:
    """The innermost handler of the pipeline: one agent, ready to be called."""

    def __init__(
        self,
        agent: Agent,
        *,
        asking: Asking,
        clock: Clock,
        on_ignored: Callable[[Delivery, str], None],
    ) -> None:
        self._agent, self._asking, self._clock = agent, asking, clock
        self._on_ignored = on_ignored

    async def __call__(self, delivery: Delivery) -> Outcome:
        """Run the handler the message is for.

        Raises: InvalidPayloadError or SchemaMismatchError before the function is called; then
            whatever the function raises.
        """
        message = delivery.message
        if message is None:
            return await self._handle_raw(delivery)
        handler, reason = choose(self._agent, message)
        if handler is None:
            self._on_ignored(delivery, reason)
            return Ack(ignored=True)
        payload = validated(handler, message)
        context = self._context(delivery, message)
        answer = await self._call(handler, payload, context)
        try:
            reply = self._answer(handler, message, answer)
        except InvalidPayloadError as error:  # of the handler's making, not of the caller's
            raise WrongResultError(f"the answer of {handler!r} cannot be sent: {error}") from error
        return Ack(reply=reply, messages=tuple(context.outbox))

    async def _handle_raw(self, delivery: Delivery) -> Outcome:
        handler = self._agent.raw_handler()
        if handler is None:
            raise InvalidPayloadError(f"agent {self._agent.name!r} takes no foreign messages")
        raw = RawMessage(
            body=delivery.body,
            content_type=delivery.properties.content_type,
            headers=dict(delivery.properties.headers),
        )
        stand_in = AgentMessage(
            sender="foreign",
            recipient=self._agent.ref,
            message_type=MessageType.DIRECT,
            timestamp=datetime.fromtimestamp(self._clock.time(), UTC),
        )
        context = self._context(delivery, stand_in)
        await self._call(handler, raw, context)
        return Ack(messages=tuple(context.outbox))

    def _context(self, delivery: Delivery, message: AgentMessage) -> Context:
        headers = delivery.properties.headers
        depth, clock_ms = headers.get(DEPTH_HEADER), headers.get(CLOCK_HEADER)
        return Context(
            message,
            sender=self._agent.ref,
            asking=self._asking,
            clock=self._clock,
            attempt=delivery.attempt,
            depth=depth if type(depth) is int and depth > 0 else 0,
            clock_ms=clock_ms if type(clock_ms) is int else None,
        )

    async def _call(self, handler: AnyHandler, payload: BaseModel, context: Context) -> Any:
        available = {Context: context, AgentMessage: context.message}
        extra = {name: available[kind] for name, kind in handler.signature.injected.items()}
        try:
            if handler.signature.is_async:
                answer = handler(payload, **extra)
                return await answer if inspect.isawaitable(answer) else answer
            return await in_thread(lambda: handler(payload, **extra), name=self._agent.name)
        except asyncio.CancelledError:
            context.cancelled = True
            raise
        finally:
            context.returned = True

    def _answer(
        self, handler: AnyHandler, message: AgentMessage, answer: Any
    ) -> AgentMessage | None:
        outgoing = answer if isinstance(answer, Outgoing) else Outgoing(answer)
        if outgoing.targeted:
            raise ConfigurationError(
                f"{handler!r} returned an Outgoing with a target; what a handler returns goes to "
                "the caller, use 'await context.publish(...)' for others"
            )
        payload = _checked_result(handler, outgoing.payload)
        if not (message.requires_response and message.reply_to):
            return None
        fields: ReplyFields = {
            "intent": outgoing.intent or message.intent,
            "evidence_refs": outgoing.evidence_refs,
            "payload_schema": handler.handles.payload_schema,
        }
        if outgoing.ttl is not None:
            fields["ttl"] = outgoing.ttl
        if outgoing.type is not None:
            fields["type"] = outgoing.type
        return written(message.reply, payload, sender=self._agent.ref, **fields)


def choose(agent: Agent, message: AgentMessage) -> tuple[AnyHandler | None, str]:
    """Return the handler a message is for; None, with the reason, for an event it is not for.

    Raises: InvalidPayloadError for an addressed message without a handler.
    """
    if is_spread(message):
        return _choose_for_event(agent, message)
    handler = agent.addressed_handler(message.intent)
    if handler is None or message.message_type in (MessageType.RESPONSE, MessageType.ERROR):
        known = sorted({h.intent for h in agent.handlers if h.intent is not None})
        raise InvalidPayloadError(
            f"agent {agent.name!r} has no handler for {message.message_type.value} with intent "
            f"{message.intent!r}; it handles: {', '.join(known) or 'events only'}"
        )
    return handler, ""


def _choose_for_event(agent: Agent, message: AgentMessage) -> tuple[AnyHandler | None, str]:
    if message.sender == agent.name:
        return None, "its own event"
    heartbeat = message.message_type is MessageType.HEARTBEAT
    event = "heartbeat" if heartbeat else message.intent or ""
    handlers = agent.event_handlers(event)
    for handler in handlers:
        if matches(handler.handles.where, message.payload):
            return handler, ""
    return None, "filtered out by where=" if handlers else f"no handler of event {event!r}"


def validated(handler: AnyHandler, message: AgentMessage) -> BaseModel:
    """Return the payload as the handler's model.

    Raises: SchemaMismatchError, or InvalidPayloadError naming each field, without its value.
    """
    wanted = handler.handles.payload_schema
    have = message.payload_schema
    if wanted is not None and have is not None and wanted not in (have, *message.compatible_with):
        raise SchemaMismatchError("payload schema", received=have, accepted=[wanted])
    payload: Mapping[str, Any] = message.payload
    if handler.handles.fields:
        payload = project(payload, handler.handles.fields)
    try:
        model: BaseModel = handler.input_type.model_validate(payload)
    except ValidationError as error:
        raise InvalidPayloadError(
            f"payload is not a {handler.input_type.__name__}: {validation_text(error)}"
        ) from None
    return model


def validation_text(error: ValidationError) -> str:
    """Return what is wrong with which field, without the values (they may be secret)."""
    wrong = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'payload'}: {item['msg']}"
        for item in wrong[:10]
    )


def _checked_result(handler: AnyHandler, result: Any) -> dict[str, Any]:
    wanted = handler.output_type
    kind = type(None) if wanted is None else Mapping if wanted is dict else wanted
    if not isinstance(result, kind):
        name = "None" if wanted is None else wanted.__name__
        raise WrongResultError(f"{handler!r} returned {type(result).__name__}, it declares {name}")
    return payload_dict(result)


async def in_thread(function: Callable[[], T], *, name: str) -> T:
    """Run a blocking function in a thread of its own, with the caller's context variables.

    The thread is a daemon: a call that never returns cannot keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only with an error

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(function)
        except BaseException as raised:  # carried over to the loop, as a coroutine's would be
            error = _portable(raised)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=f"agent-{name}", daemon=True).start()
    return await done


def _portable(error: BaseException) -> BaseException:
    # A future refuses StopIteration, and GeneratorExit would end the coroutine that awaits it.
    ending = isinstance(error, StopIteration | GeneratorExit)
    return RuntimeError(f"the handler raised {type(error).__name__}") if ending else error
