import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import ConfigurationError
from amqp_agents.injection import RawMessage, signature_of
from amqp_agents.protocol import AgentMessage
from tests.unit.stage import Draft, Review


async def whole(draft: Draft, context: Context, *, message: AgentMessage) -> Review:
    raise NotImplementedError


def blocking(draft: Draft) -> None: ...


async def outgoing(draft: Draft) -> Outgoing[Review]:
    raise NotImplementedError


async def loose(draft: Draft) -> dict[str, Any]:
    raise NotImplementedError


async def mapping(draft: Draft) -> Mapping[str, Any]:
    raise NotImplementedError


async def nothing(draft: Draft) -> Outgoing[None]:
    raise NotImplementedError


async def raw(body: RawMessage) -> None: ...


class Shop:
    """Handlers also live in classes."""

    async def method(self, draft: Draft) -> Review:
        raise NotImplementedError

    @staticmethod
    async def static(draft: Draft) -> Review:
        raise NotImplementedError


def test_a_handler_says_what_it_takes_and_gives() -> None:
    signature = signature_of(whole)
    assert (signature.input_type, signature.output_type) == (Draft, Review)
    assert signature.injected == {"context": Context, "message": AgentMessage}
    assert signature.is_async
    assert not signature.accepts_raw


@pytest.mark.parametrize(
    ("function", "output", "is_async"),
    [
        (blocking, None, False),
        (outgoing, Review, True),
        (nothing, None, True),
        (loose, dict, True),
        (mapping, dict, True),
        (Shop().method, Review, True),
        (Shop.__dict__["static"], Review, True),
    ],
)
def test_answers_are_a_model_a_dict_or_nothing(
    function: Callable[..., Any], output: Any, is_async: bool
) -> None:
    signature = signature_of(function)
    assert (signature.output_type, signature.is_async) == (output, is_async)


def test_a_handler_of_raw_messages_accepts_what_is_foreign() -> None:
    assert signature_of(raw).accepts_raw


def test_a_decorated_coroutine_function_is_still_one() -> None:
    @functools.wraps(whole)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return whole(*args, **kwargs)

    assert signature_of(wrapped).is_async


def of_source(annotations: str) -> Callable[..., Any]:
    """A function of a module with deferred annotations, whose models are local."""
    source = f"from __future__ import annotations\ndef declare():\n{annotations}\n    return handle"
    module: dict[str, Any] = {"BaseModel": BaseModel}
    exec(source, module)
    declared: Callable[..., Any] = module["declare"]()
    return declared


LOCAL = "    class Local(BaseModel): ...\n    async def handle(draft: Local) -> None: ..."


async def bare(draft) -> Review: ...  # type: ignore[no-untyped-def,empty-body]


async def takes_dict(draft: dict[str, Any]) -> None: ...


async def takes_any_model(draft: BaseModel) -> None: ...


async def takes_message(message: AgentMessage) -> None: ...


async def context_first(context: Context, draft: Draft) -> None: ...


async def optional(draft: Draft | None) -> None: ...


async def no_parameters() -> None: ...


async def only_stars(*args: Draft) -> None: ...


async def only_keyword(*, draft: Draft) -> None: ...


async def with_stars(draft: Draft, *args: Context) -> None: ...


async def with_double_stars(draft: Draft, **kwargs: Context) -> None: ...


async def with_positional_only(draft: Draft, context: Context, /) -> None: ...


async def with_a_number(draft: Draft, limit: int = 3) -> None: ...


async def unannotated_second(draft: Draft, context) -> None: ...  # type: ignore[no-untyped-def]


async def returns_a_tuple(draft: Draft) -> tuple[int, int]:
    raise NotImplementedError


async def returns_bare_outgoing(draft: Draft) -> Outgoing:  # type: ignore[type-arg]
    raise NotImplementedError


async def returns_outgoing_of_text(draft: Draft) -> Outgoing[str]:  # type: ignore[type-var]
    raise NotImplementedError


async def says_nothing(draft: Draft): ...  # type: ignore[no-untyped-def]


def returns_awaitable(draft: Draft) -> Awaitable[Review]:
    raise NotImplementedError


def generator(draft: Draft) -> Iterator[Review]:
    yield Review()


async def async_generator(draft: Draft) -> AsyncIterator[Review]:
    yield Review()


def misnamed(draft: "SimpleNamespace.Missing") -> None: ...  # type: ignore[name-defined]


def misspelt(draft: "Draft[") -> None: ...  # type: ignore # noqa: F722


class Callee:
    """An object that can be called, and is no function."""

    async def __call__(self, draft: Draft) -> Review:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (bare, "the first parameter 'draft' of handler bare has no annotation; annotate it with"),
        (takes_dict, "the first parameter 'draft' of handler takes_dict has the annotation dict"),
        (takes_any_model, "has the annotation BaseModel; annotate it with the pydantic model"),
        (takes_message, "annotation AgentMessage; annotate it with the pydantic model of the"),
        (context_first, "annotation Context; annotate it with the pydantic model of the payload"),
        (context_first, "(Context and AgentMessage come after it)"),
        (optional, "the first parameter 'draft' of handler optional has the annotation"),
        (no_parameters, "handler no_parameters takes no payload; give it a pydantic model as its"),
        (only_stars, "handler only_stars takes no payload"),
        (only_keyword, "handler only_keyword takes no payload"),
        (lambda: None, "<lambda> takes no payload"),
        (lambda draft: None, "the first parameter 'draft' of handler"),
        (with_stars, "'args' of handler with_stars cannot be filled"),
        (with_stars, "annotated and by name, not variadic positional"),
        (with_double_stars, "annotated and by name, not variadic keyword"),
        (with_positional_only, "annotated and by name, not positional-only"),
        (with_a_number, "'limit' of handler with_a_number cannot be filled; after the payload a"),
        (
            with_a_number,
            "handler may take Context and AgentMessage, annotated and by name, not int",
        ),
        (unannotated_second, "not nothing annotated"),
        (returns_a_tuple, "handler returns_a_tuple returns tuple; annotate it with a pydantic"),
        (returns_bare_outgoing, "returns Outgoing; annotate it with a pydantic model, dict, None"),
        (returns_outgoing_of_text, "returns str; annotate it with a pydantic model, dict, None"),
        (says_nothing, "handler says_nothing returns nothing annotated; annotate it with"),
        (returns_awaitable, "returns Awaitable; annotate it with a pydantic model"),
        (generator, "handler generator yields; a handler returns one answer"),
        (async_generator, "handler async_generator yields; a handler returns one answer"),
        (of_source(LOCAL), "move the model to module level or remove 'from __future__ import"),
        (misnamed, "has an annotation that cannot be resolved"),
        (misspelt, "has an annotation that cannot be resolved"),
        (functools.partial(whole), "is a partial, not a function; declare a handler with 'def'"),
        (Callee(), "is a Callee, not a function; declare a handler with 'def' or 'async def'"),
        (Callee, "Callee is a type, not a function"),
        (
            classmethod(whole),  # type: ignore[arg-type]
            "is a classmethod, not a function",
        ),
        (print, "print is a builtin_function_or_method, not a function"),
        (Shop.method, "the first parameter 'self' of handler Shop.method has no annotation"),
    ],
)
def test_a_wrong_declaration_is_told_in_one_sentence_with_its_mend(
    function: Any, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        signature_of(function)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
