"""Reading a handler's signature: which model it takes, what it wants beside it, what it returns."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict

from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import ConfigurationError
from amqp_agents.protocol import AgentMessage


class RawMessage(BaseModel):
    """A message of a foreign sender: no envelope, the body as it came.

    An agent whose handler takes a RawMessage accepts foreign messages; every other agent
    dead-letters them at the first delivery.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    body: bytes
    content_type: str | None = None
    headers: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Signature:
    """What a handler takes and returns; `injected` maps parameter names to their types."""

    input_type: type[BaseModel]
    output_type: Any
    injected: Mapping[str, type]
    is_async: bool

    @property
    def accepts_raw(self) -> bool:
        """Whether the handler takes foreign messages."""
        return issubclass(self.input_type, RawMessage)


INJECTABLE: tuple[type, ...] = (Context, AgentMessage)
NO_PAYLOAD: tuple[type, ...] = (AgentMessage, BaseModel)
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def signature_of(function: Callable[..., Any]) -> Signature:
    """Read the signature of a handler.

    Raises: ConfigurationError in one sentence that names the parameter and the mend.
    """
    name = getattr(function, "__qualname__", repr(function))
    function = _plain(function, name)
    hints = _hints(function, name)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigurationError(
            f"handler {name} takes no payload; give it a pydantic model as its first parameter, "
            f"as in 'async def {function.__name__}(payload: MyModel) -> MyResult'"
        )
    return Signature(
        input_type=_model(name, parameters[0], hints),
        output_type=_result(name, hints),
        injected={p.name: _injected(name, p, hints) for p in parameters[1:]},
        # A decorator may have wrapped the coroutine function in one that just returns its call.
        is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
    )


def _plain(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function itself; refuse what only behaves like one."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ConfigurationError(
            f"{name} is a {type(function).__name__}, not a function; "
            "declare a handler with 'def' or 'async def'"
        )
    whole = inspect.unwrap(function)
    if inspect.isgeneratorfunction(whole) or inspect.isasyncgenfunction(whole):
        raise ConfigurationError(
            f"handler {name} yields; a handler returns one answer, and sends what comes before it "
            "with 'await context.publish(...)'"
        )
    return function


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ConfigurationError(
            f"handler {name} has an annotation that cannot be resolved ({error}); "
            "move the model to module level or remove 'from __future__ import annotations'"
        ) from error


def _model(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> type[BaseModel]:
    hint = hints.get(parameter.name)
    if isinstance(hint, type) and issubclass(hint, BaseModel) and hint not in NO_PAYLOAD:
        return hint
    found = "no annotation" if hint is None else f"the annotation {_text(hint)}"
    raise ConfigurationError(
        f"the first parameter {parameter.name!r} of handler {name} has {found}; annotate it with "
        "the pydantic model of the payload (Context and AgentMessage come after it)"
    )


def _injected(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> type:
    hint = hints.get(parameter.name)
    if hint in INJECTABLE and parameter.kind in BY_NAME:
        return cast(type, hint)
    found = _text(hint) if parameter.kind in BY_NAME else parameter.kind.description
    raise ConfigurationError(
        f"parameter {parameter.name!r} of handler {name} cannot be filled; after the payload a "
        f"handler may take Context and AgentMessage, annotated and by name, not {found}"
    )


def _result(name: str, hints: Mapping[str, Any]) -> Any:
    hint = hints.get("return", ...)
    if get_origin(hint) is Outgoing:
        (hint,) = get_args(hint)
    if hint in (None, NoneType):
        return None
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    if hint is dict or get_origin(hint) in (dict, Mapping):
        return dict
    raise ConfigurationError(
        f"handler {name} returns {_text(hint)}; annotate it with a pydantic model, dict, None or "
        "Outgoing of one of these"
    )


def _text(hint: Any) -> str:
    if hint is ... or hint is None:
        return "nothing annotated"
    return getattr(hint, "__name__", None) or str(hint)
