"""What a handler may say and ask: outgoing messages, and the context of one handling."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, overload

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic_core import PydanticSerializationError

from amqp_agents.clock import Clock
from amqp_agents.errors import ConfigurationError, InvalidPayloadError
from amqp_agents.protocol import (
    AgentMessage,
    AgentRef,
    Causality,
    MessageType,
    Policy,
    remaining_seconds,
)
from amqp_agents.protocol.json_values import check_json, check_kept
from amqp_agents.protocol.reading import invalid
from amqp_agents.protocol.times import epoch_ms
from amqp_agents.topology.names import checked_intent

Result: TypeAlias = BaseModel | Mapping[str, Any] | None
In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out", bound=Result)
AnyOut = TypeVar("AnyOut", bound=Result, covariant=True)
Model = TypeVar("Model", bound=BaseModel)

MAX_DEPTH = 16
SENSITIVITIES = ("low", "normal", "high")


class Outgoing(Generic[AnyOut]):
    """A payload and what to do with it; the runtime writes the envelope.

    Returned by a handler it is the answer, and names no target. Published it goes `to` one
    agent, or to everybody who declared the `event` or the `broadcast`.

    Units:  ttl seconds; priority 1 (most urgent) to 10.
    """

    def __init__(  # noqa: PLR0913 - one keyword per envelope field a handler may set
        self,
        payload: AnyOut,
        *,
        intent: str | None = None,
        to: str | None = None,
        event: str | None = None,
        broadcast: str | None = None,
        type: str | None = None,
        evidence_refs: Sequence[str] = (),
        ttl: int | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        sensitivity: str | None = None,
    ) -> None:
        self.payload = payload
        self.intent, self.to, self.event, self.broadcast = intent, to, event, broadcast
        self.type, self.evidence_refs = type, tuple(evidence_refs)
        self.ttl, self.priority, self.idempotency_key = ttl, priority, idempotency_key
        self.sensitivity = sensitivity
        if sum(target is not None for target in (to, event, broadcast)) > 1:
            raise ConfigurationError("an Outgoing has one target: to=, event= or broadcast=")
        for told in (event, broadcast):
            if told is not None:
                checked_intent(told)

    @property
    def targeted(self) -> bool:
        """Whether it names where it goes."""
        return any(target is not None for target in (self.to, self.event, self.broadcast))


class Target(Generic[In, AnyOut]):
    """What can be asked: one intent of one agent, with the models of question and answer."""

    agent_name: str
    intent: str | None
    input_type: type[In]
    output_type: Any


class Caller(Protocol):
    """Asks agents and publishes; a client outside, or the context inside a handler."""

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

    async def publish(self, message: Outgoing[Any]) -> None: ...


class Asking(Protocol):
    """What a context needs to reach other agents; the requester of the app is one."""

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
    ) -> Any: ...

    async def send(self, message: AgentMessage, *, depth: int) -> None: ...


class Context:
    """One handling: its message, its attempt, its deadline, and a way to ask others.

    Requests made here carry on the trace, take no more time than the message has left, and
    count one hop deeper; a chain deeper than 16 hops is refused as a circle.
    """

    def __init__(  # noqa: PLR0913 - the facts of one handling
        self,
        message: AgentMessage,
        *,
        sender: AgentRef,
        asking: Asking,
        clock: Clock,
        attempt: int = 1,
        depth: int = 0,
        clock_ms: int | None = None,
    ) -> None:
        self.message, self.attempt, self.depth = message, attempt, depth
        self.cancelled = False  # a handler in a thread cannot be interrupted, but can look
        self.returned = False
        self.outbox: list[AgentMessage] = []
        self._sender, self._asking, self._clock = sender, asking, clock
        self._clock_ms = clock_ms  # a replayed message is young again

    @property
    def deadline(self) -> datetime | None:
        """When the message expires (aware UTC), or None."""
        start_ms = max(epoch_ms(self.message.timestamp), self._clock_ms or 0)
        life = remaining_seconds(self.message, clock_ms=self._clock_ms, now=start_ms / 1000)
        if life is None:
            return None
        try:
            return datetime.fromtimestamp(start_ms / 1000, UTC) + timedelta(seconds=life)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    @property
    def remaining_seconds(self) -> float | None:
        """How long the message has left, never negative; None if it never expires."""
        return remaining_seconds(self.message, clock_ms=self._clock_ms, now=self._clock.time())

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
        """Ask another agent and return its answer.

        Raises: as `Client.request`; the time limit is the shorter of `timeout_seconds` and what
            the handled message has left.
        """
        left = self.remaining_seconds
        return await self._asking.ask(
            target,
            payload,
            intent=intent,
            returns=returns,
            timeout_seconds=timeout_seconds if left is None else min(timeout_seconds, left),
            sender=self._sender,
            parent=self.message,
            depth=self.depth + 1,
        )

    async def publish(self, message: Outgoing[Any], *, immediately: bool = False) -> None:
        """Send a message to others once the handler has returned, before the ack.

        Nothing leaves if the handler raises. `immediately` sends now, whatever happens later.

        Raises: ConfigurationError without a target, or once the handler has returned;
            InvalidPayloadError.
        """
        composed = compose_message(message, sender=self._sender, parent=self.message)
        if immediately:
            await self._asking.send(composed, depth=self.depth + 1)
        elif self.returned:
            raise ConfigurationError(
                "the handler has returned, and what it published has left; await what it starts, "
                "or publish with immediately=True"
            )
        else:
            self.outbox.append(composed)


def compose_message(
    outgoing: Outgoing[Any], *, sender: AgentRef, parent: AgentMessage | None = None
) -> AgentMessage:
    """Write the envelope of a published message: kind, target, trace, causality, policy.

    Raises: ConfigurationError if it names no target, InvalidPayloadError for the payload.
    """
    if not outgoing.targeted:
        raise ConfigurationError("publish needs a target: Outgoing(…, to=, event= or broadcast=)")
    intent: str | None
    if outgoing.event is not None:
        kind, intent = MessageType.EVENT, outgoing.event
    elif outgoing.broadcast is not None:
        kind, intent = MessageType.BROADCAST, outgoing.broadcast
    else:
        kind, intent = MessageType.DIRECT, outgoing.intent
    fields = _given(
        type=outgoing.type,
        intent=intent,
        ttl=outgoing.ttl,
        priority=outgoing.priority,
        idempotency_key=outgoing.idempotency_key,
        policy=_policy(outgoing, parent),
    )
    return written(
        AgentMessage,
        sender=sender,
        recipient=outgoing.to,
        message_type=kind,
        payload=payload_dict(outgoing.payload),
        evidence_refs=list(outgoing.evidence_refs),
        **(inherited(parent) | fields),
    )


def written(write: Callable[..., AgentMessage], *given: Any, **fields: Any) -> AgentMessage:
    """Return the envelope that `write` makes of the fields.

    Raises: InvalidPayloadError naming each field that cannot be.
    """
    try:
        return write(*given, **fields)
    except ValidationError as error:
        raise invalid(error) from None


def inherited(parent: AgentMessage | None) -> dict[str, Any]:
    """Return the envelope fields a message takes from the one that caused it."""
    if parent is None:
        return {}
    return _given(
        trace_id=parent.trace_id,
        task_id=parent.task_id,
        context_id=parent.context_id,
        policy=parent.policy,
        causality=Causality(parent_message_id=parent.message_id, step_id=parent.causality.step_id),
    )


def payload_dict(payload: Result) -> dict[str, Any]:
    """Return the payload as JSON data; a model is dumped, None is an empty object.

    Raises: InvalidPayloadError naming what JSON cannot carry, e.g. `payload.scores[3]`.

    >>> payload_dict({"score": float("nan")})
    Traceback (most recent call last):
        ...
    amqp_agents.errors.InvalidPayloadError: payload.score is nan, which JSON cannot carry
    """
    data = {} if payload is None else _dumped(payload)
    if not isinstance(data, Mapping):
        raise InvalidPayloadError(
            f"a payload is an object: give a pydantic model, a dict or None, "
            f"not {type(payload).__name__}"
        )
    data = dict(data)
    check_json(data, at="payload")
    return data


def _dumped(payload: object) -> object:
    if not isinstance(payload, BaseModel):
        return payload
    try:
        written = payload.model_dump(mode="json", by_alias=True)  # as a reader's model wants it
        check_kept(payload.model_dump(by_alias=True), written, at="payload")
        return written
    except (PydanticSerializationError, PydanticUserError, ValueError) as error:
        raise InvalidPayloadError(
            f"{type(payload).__name__} cannot be written as JSON: {error}"
        ) from error


def _policy(outgoing: Outgoing[Any], parent: AgentMessage | None) -> Policy | None:
    policy = None if parent is None else parent.policy
    wanted = outgoing.sensitivity
    if wanted is None:
        return policy
    if wanted not in SENSITIVITIES:
        raise InvalidPayloadError(
            f"sensitivity {wanted!r} is not one of {', '.join(SENSITIVITIES)}"
        )
    policy = policy or Policy()
    if (
        SENSITIVITIES.index(wanted) <= SENSITIVITIES.index(policy.sensitivity)
        and parent is not None
    ):
        return policy  # what a message follows from was at least so sensitive
    return policy.model_copy(update={"sensitivity": wanted})


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
