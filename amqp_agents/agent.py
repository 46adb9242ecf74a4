"""Declaring agents: `@agent`, `Agent(...).on(intent)`, `.on_event(...)`. Values, no I/O."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from pydantic import BaseModel

from amqp_agents.config import RetryPolicy
from amqp_agents.context import In, Out, Outgoing, Target
from amqp_agents.errors import ConfigurationError, DuplicateAgentError
from amqp_agents.injection import Signature, signature_of
from amqp_agents.protocol import AgentRef
from amqp_agents.routing.breaker_state import BreakerPolicy
from amqp_agents.topology.model import AgentSpec
from amqp_agents.topology.names import checked_agent_id, topic_matches

P = ParamSpec("P")
Ret = TypeVar("Ret", covariant=True)

DEFAULT_RETRY = RetryPolicy()
DEFAULT_BREAKER = BreakerPolicy()
DEFAULT_CONCURRENCY = 8
MAX_PREFETCH = 65_535  # what AMQP has two bytes for
DEFAULT_TIME_LIMIT_SECONDS = 600.0


class BoundHandler(Target[In, Out], Generic[In, Out, P, Ret]):
    """A function declared as the handler of one intent; calling it is calling the function."""

    def __init__(
        self, function: Callable[Concatenate[In, P], Ret], agent: "Agent", *, handles: "Handles"
    ) -> None:
        self.signature: Signature = signature_of(function)
        self.function, self.agent, self.handles = function, agent, handles
        self.agent_name, self.intent = agent.name, handles.intent
        self.input_type = self.signature.input_type  # type: ignore[assignment]  # checked there
        self.output_type = self.signature.output_type
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", repr(function))

    @property
    def accepts_raw(self) -> bool:
        """Whether it is for foreign messages, and only for these."""
        return self.signature.accepts_raw

    def __call__(self, payload: In, /, *args: P.args, **kwargs: P.kwargs) -> Ret:
        """Call the user's own function."""
        return self.function(payload, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler {self.__name__} of agent {self.agent_name!r}>"


class Handles:
    """Which messages a handler is for: an intent, any addressed message, or an event."""

    def __init__(
        self,
        intent: str | None,
        *,
        event: str | None = None,
        where: Mapping[str, Any] | None = None,
        fields: Sequence[str] = (),
        payload_schema: str | None = None,
    ) -> None:
        self.intent, self.event = intent, event
        self.where, self.fields = dict(where or {}), tuple(fields)
        self.payload_schema = payload_schema


class Declare(Protocol):
    """A decorator that keeps the function's own type."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[In, P], Awaitable[Outgoing[Out]]], /
    ) -> BoundHandler[In, Out, P, Awaitable[Outgoing[Out]]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[In, P], Awaitable[Out]], /
    ) -> BoundHandler[In, Out, P, Awaitable[Out]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[In, P], Outgoing[Out]], /
    ) -> BoundHandler[In, Out, P, Outgoing[Out]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[In, P], Out], /
    ) -> BoundHandler[In, Out, P, Out]: ...


class Agent:
    """One agent: its name, how it is fed, and its handlers by intent and by event.

    An agent that keeps failing stops taking messages for a while; `breaker` says when, None never.

    Units:  `concurrency` handlers at once per process; `time_limit_seconds` for one of them,
        None for no limit.
    """

    def __init__(  # noqa: PLR0913 - the options of one declaration
        self,
        name: str,
        *,
        role: str | None = None,
        capabilities: Sequence[str] = (),
        concurrency: int = DEFAULT_CONCURRENCY,
        retry: RetryPolicy = DEFAULT_RETRY,
        breaker: BreakerPolicy | None = DEFAULT_BREAKER,
        time_limit_seconds: float | None = DEFAULT_TIME_LIMIT_SECONDS,
    ) -> None:
        self.name = checked_agent_id(name)
        self.role, self.capabilities = role, tuple(capabilities)
        self.concurrency = _prefetch(name, "concurrency", concurrency)
        self.retry, self.breaker = retry, breaker
        self.time_limit_seconds = _positive(name, "time_limit_seconds", time_limit_seconds)
        self.handlers: list[BoundHandler[Any, Any, Any, Any]] = []

    def on(self, intent: str, *, payload_schema: str | None = None) -> Declare:
        """Declare the handler of one intent of addressed messages.

        `payload_schema` (`name.v2`) is written on answers, and refused requests are told it.
        """
        return self._declare(Handles(intent, payload_schema=payload_schema))

    def on_event(
        self,
        event: str,
        *,
        where: Mapping[str, Any] | None = None,
        fields: Sequence[str] = (),
    ) -> Declare:
        """Declare a handler of events and broadcasts; `*` and `#` are topic wildcards.

        `where` filters on the payload, `fields` keeps only these of it.
        """
        return self._declare(Handles(None, event=event, where=where, fields=fields))

    @property
    def ref(self) -> AgentRef:
        """The agent as a sender."""
        return AgentRef(self.name, self.role)

    @property
    def spec(self) -> AgentSpec:
        """What the topology has to know of it."""
        events = tuple(sorted({h.handles.event for h in self.handlers if h.handles.event}))
        return AgentSpec(
            name=self.name,
            role=self.role,
            capabilities=self.capabilities,
            events=events,
        )

    def addressed_handler(self, intent: str | None) -> BoundHandler[Any, Any, Any, Any] | None:
        """Return the handler of an addressed message: its intent's own, else the one for any."""
        addressed = [h for h in self.handlers if h.handles.event is None and not h.accepts_raw]
        own = [h for h in addressed if h.intent is not None and h.intent == intent]
        return next(iter(own + [h for h in addressed if h.intent is None]), None)

    def event_handlers(self, event: str) -> list[BoundHandler[Any, Any, Any, Any]]:
        """Return the handlers whose event pattern matches, as they were declared."""
        patterns = [(h.handles.event, h) for h in self.handlers if not h.accepts_raw]
        return [h for pattern, h in patterns if pattern and topic_matches(pattern, event)]

    def raw_handler(self) -> BoundHandler[Any, Any, Any, Any] | None:
        """Return the handler of foreign messages, if the agent accepts them."""
        return next((h for h in self.handlers if h.accepts_raw), None)

    def _declare(self, handles: Handles) -> Declare:
        def declare(function: Callable[..., Any]) -> BoundHandler[Any, Any, Any, Any]:
            bound: BoundHandler[Any, Any, Any, Any] = BoundHandler(function, self, handles=handles)
            for other in self.handlers:
                if (other.intent, other.handles.event) == (handles.intent, handles.event):
                    raise DuplicateAgentError(self.name, intent=handles.event or handles.intent)
            self.handlers.append(bound)
            return bound

        return declare

    def __repr__(self) -> str:
        return f"<agent {self.name!r}>"


def agent(  # noqa: PLR0913 - the options of one declaration
    name: str,
    *,
    role: str | None = None,
    capabilities: Sequence[str] = (),
    concurrency: int = DEFAULT_CONCURRENCY,
    retry: RetryPolicy = DEFAULT_RETRY,
    breaker: BreakerPolicy | None = DEFAULT_BREAKER,
    time_limit_seconds: float | None = DEFAULT_TIME_LIMIT_SECONDS,
) -> Declare:
    """Declare a function as the agent `name`, for addressed messages of any intent.

    Its first parameter is the payload model; what it returns is the answer. A plain `def`
    runs in a thread. Nothing connects here: list the agent in `AgentApp([...])`.

    Raises: ConfigurationError for a name, a signature or an option that cannot work.
    """
    return Agent(
        name,
        role=role,
        capabilities=capabilities,
        concurrency=concurrency,
        retry=retry,
        breaker=breaker,
        time_limit_seconds=time_limit_seconds,
    )._declare(Handles(None))


def payload_model(target: Target[Any, Any]) -> type[BaseModel]:
    """Return the model of a target's question."""
    model: type[BaseModel] = target.input_type
    return model


def _prefetch(name: str, option: str, value: int) -> int:
    if type(value) is not int or not 1 <= value <= MAX_PREFETCH:
        raise ConfigurationError(
            f"{option} of agent {name!r} must be a whole number from 1 to {MAX_PREFETCH}, "
            f"not {value!r}"
        )
    return value


def _positive(name: str, option: str, value: float | None) -> float | None:
    if value is not None and not (isinstance(value, int | float) and value > 0):
        raise ConfigurationError(
            f"{option} of agent {name!r} must be above 0, or None, not {value!r}"
        )
    return value
