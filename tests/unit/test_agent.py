import inspect
from typing import Any

import pytest

from amqp_agents.agent import Agent, BoundHandler, agent
from amqp_agents.context import Context
from amqp_agents.errors import ConfigurationError, DuplicateAgentError
from amqp_agents.injection import RawMessage
from tests.unit.stage import Draft, Review


@agent("quality_agent", role="quality", capabilities=["review"], concurrency=3)
async def review(draft: Draft) -> Review:
    """Look closely."""
    return Review(risk="high" if "refund" in draft.text else "low")


@agent("counter")
def count(draft: Draft, *, context: Context) -> dict[str, Any]:
    return {"length": len(draft.text), "attempt": context}


async def test_calling_a_declared_function_is_calling_the_function() -> None:
    assert (await review(Draft(text="refund"))).risk == "high"
    assert count(Draft(text="four"), context="any") == {"length": 4, "attempt": "any"}  # type: ignore[arg-type]


def test_a_declared_function_keeps_its_name_and_its_documentation() -> None:
    assert (review.__name__, review.__doc__) == ("review", "Look closely.")
    assert repr(review) == "<handler review of agent 'quality_agent'>"


def test_it_also_says_what_can_be_asked() -> None:
    assert isinstance(review, BoundHandler)
    assert (review.agent_name, review.intent) == ("quality_agent", None)
    assert (review.input_type, review.output_type) == (Draft, Review)


def test_the_options_are_the_agents() -> None:
    quality = review.agent
    assert (quality.name, quality.role, quality.concurrency) == ("quality_agent", "quality", 3)
    assert (quality.ref, quality.ref.role) == ("quality_agent", "quality")
    assert quality.spec.capabilities == ("review",)


def test_nothing_is_noted_anywhere_but_in_the_agent() -> None:
    lonely = Agent("lonely")
    assert lonely.handlers == []
    handler = lonely.on("x")(review.function)
    assert lonely.handlers == [handler]


def test_an_intents_own_handler_goes_before_the_one_for_any() -> None:
    mixed = review.agent.__class__("mixed")
    own = mixed.on("look")(review.function)
    assert mixed.addressed_handler("look") is own
    assert mixed.addressed_handler("other") is None
    assert review.agent.addressed_handler("anything") is review
    assert review.agent.addressed_handler(None) is review


def test_events_are_matched_by_words_in_the_order_of_declaration() -> None:
    listener = Agent("listener")

    @listener.on_event("ticket.*")
    async def ticket(draft: Draft) -> None: ...

    @listener.on_event("ticket.closed", where={"x": 1}, fields=["text"])
    async def closed(draft: Draft) -> None: ...

    assert listener.event_handlers("ticket.closed") == [ticket, closed]
    assert listener.event_handlers("ticket.opened") == [ticket]
    assert listener.event_handlers("ticket") == []
    assert listener.event_handlers("") == []
    assert listener.spec.events == ("ticket.*", "ticket.closed")
    assert (closed.handles.where, closed.handles.fields) == ({"x": 1}, ("text",))


def test_a_handler_of_foreign_messages_is_for_no_other() -> None:
    bridge = Agent("bridge")

    @bridge.on("whatever")
    async def raw(body: RawMessage) -> None: ...

    assert bridge.raw_handler() is raw
    assert bridge.addressed_handler("whatever") is None
    assert review.agent.raw_handler() is None


def test_an_intent_has_one_handler() -> None:
    twice = Agent("twice")
    twice.on("look")(review.function)
    with pytest.raises(DuplicateAgentError, match="intent 'look' of agent 'twice'"):
        twice.on("look")(review.function)
    assert len(twice.handlers) == 1


def test_an_event_pattern_has_one_handler() -> None:
    twice = Agent("twice")
    twice.on_event("x.y")(review.function)
    twice.on("x.y")(review.function)
    with pytest.raises(DuplicateAgentError, match=r"intent 'x\.y' of agent 'twice'"):
        twice.on_event("x.y")(review.function)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "x" * 65, "ü", "lost", "journal", 7, None])
def test_a_name_that_is_no_word_of_a_routing_key_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="agent id"):
        Agent(name)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, None, 65_536])
def test_a_concurrency_that_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="concurrency of agent 'a' must be a whole number"):
        agent("a", concurrency=value)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "60"])
def test_a_time_limit_that_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="time_limit_seconds of agent 'a' must be above 0"):
        agent("a", time_limit_seconds=value)


def test_a_signature_that_cannot_work_is_refused_where_it_stands() -> None:
    with pytest.raises(ConfigurationError, match="first parameter"):

        @agent("wrong")  # type: ignore[arg-type, type-var]
        async def wrong(draft: dict[str, Any]) -> None: ...


async def test_static_methods_can_be_declared_too() -> None:
    class Shop:
        @agent("shop")
        @staticmethod
        async def sell(draft: Draft) -> Review:
            return Review(risk=draft.text)

    answer = Shop.sell(Draft(text="none"))
    assert inspect.isawaitable(answer)
    assert (await answer).risk == "none"
