import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest

from amqp_agents.agent import Agent, agent
from amqp_agents.clock import ManualClock
from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import (
    ConfigurationError,
    InvalidPayloadError,
    SchemaMismatchError,
    WrongResultError,
)
from amqp_agents.handling import AgentHandler, choose, in_thread, validated
from amqp_agents.injection import RawMessage
from amqp_agents.outcome import Ack
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol import AgentMessage, MessageType
from amqp_agents.protocol.properties import Properties
from amqp_agents.routing.failures import counts_as_failure
from tests.unit.stage import Draft, Review, within

quality = Agent("quality")


@quality.on("look", payload_schema="draft.v2")
async def look(draft: Draft) -> Review:
    return Review()


@quality.on_event("ticket.*", where={"risk": ["high"]}, fields=["text"])
async def ticket(draft: Draft) -> None: ...


@quality.on_event("#")
async def anything(draft: Draft) -> None: ...


def message(kind: MessageType = MessageType.REQUEST, **fields: Any) -> AgentMessage:
    to = {"recipient": "quality"} if kind is MessageType.REQUEST else {}
    return AgentMessage(message_type=kind, **({"sender": "someone"} | to | fields))


def handler_of(declared: Agent, ignored: list[str] | None = None) -> AgentHandler:
    notes = [] if ignored is None else ignored
    return AgentHandler(
        declared,
        asking=None,  # type: ignore[arg-type]
        clock=ManualClock(frozen=True),
        on_ignored=lambda _, why: notes.append(why),
    )


async def outcome_of(declared: Agent, arrived: AgentMessage | None, **headers: Any) -> Ack:
    delivery = Delivery(b"raw", Properties(headers=headers), "agent.quality", message=arrived)
    outcome = await within(handler_of(declared)(delivery))
    assert isinstance(outcome, Ack)
    return outcome


def test_an_event_goes_to_the_first_handler_that_wants_it() -> None:
    high = message(MessageType.EVENT, intent="ticket.closed", payload={"risk": "high"})
    low = message(MessageType.EVENT, intent="ticket.closed", payload={"risk": "low"})
    assert choose(quality, high) == (ticket, "")
    assert choose(quality, low) == (anything, "")


def test_an_event_that_every_filter_refuses_is_for_nobody() -> None:
    picky = Agent("picky")
    picky.on_event("x", where={"n": 1})(ticket.function)
    event = message(MessageType.EVENT, intent="x", payload={"n": 2})
    assert choose(picky, event) == (None, "filtered out by where=")


def test_an_event_without_a_handler_is_for_nobody() -> None:
    event = message(MessageType.EVENT, intent="stock.empty")
    assert choose(Agent("deaf"), event) == (None, "no handler of event 'stock.empty'")


def test_an_agents_own_event_is_not_for_itself() -> None:
    own = message(MessageType.EVENT, sender="quality", intent="ticket.closed")
    assert choose(quality, own) == (None, "its own event")


def test_a_heartbeat_is_the_event_of_that_name_whatever_its_intent() -> None:
    watcher = Agent("watcher")
    heard = watcher.on_event("heartbeat")(anything.function)
    assert choose(watcher, message(MessageType.HEARTBEAT)) == (heard, "")
    assert choose(watcher, message(MessageType.HEARTBEAT, intent="alive")) == (heard, "")


def test_a_broadcast_that_names_an_agent_is_still_for_all_who_listen() -> None:
    named = message(
        MessageType.BROADCAST, recipient="other", recipient_mode="broadcast", intent="pause"
    )
    assert choose(quality, named) == (anything, "")
    assert choose(Agent("deaf"), named)[0] is None


def test_an_event_to_one_agent_is_addressed_to_it() -> None:
    addressed = message(MessageType.EVENT, recipient="quality", intent="look")
    assert choose(quality, addressed) == (look, "")


@pytest.mark.parametrize("intent", ["other", None])
def test_an_intent_nobody_declared_is_refused_with_those_that_are(intent: str | None) -> None:
    with pytest.raises(InvalidPayloadError) as raised:
        choose(quality, message(intent=intent))
    assert str(raised.value) == (
        f"agent 'quality' has no handler for request with intent {intent!r}; it handles: look"
    )


def test_an_agent_that_only_listens_says_so() -> None:
    with pytest.raises(InvalidPayloadError, match="it handles: events only"):
        choose(Agent("deaf"), message())


@pytest.mark.parametrize("kind", [MessageType.RESPONSE, MessageType.ERROR])
def test_an_answer_in_an_inbox_is_nobodys_work(kind: MessageType) -> None:
    everything = Agent("everything")
    everything._declare(look.handles)(look.function)
    with pytest.raises(InvalidPayloadError, match=f"no handler for {kind.value}"):
        choose(everything, message(kind, recipient="everything", intent="look"))


def test_a_payload_is_given_as_the_handlers_model() -> None:
    assert validated(look, message(payload={"text": "hello"})) == Draft(text="hello")


def test_a_wrong_payload_is_told_by_field_and_never_by_value() -> None:
    with pytest.raises(InvalidPayloadError) as raised:
        validated(look, message(payload={"text": {"secret": "hunter2"}}))
    assert str(raised.value).startswith("payload is not a Draft: text: ")
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_subscriber_gets_only_the_fields_it_asked_for() -> None:
    event = message(MessageType.EVENT, intent="ticket.x", payload={"text": "a", "phone": {}})
    assert validated(ticket, event) == Draft(text="a")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"payload_schema": "draft.v2"},
        {"payload_schema": "d.v3", "compatible_with": ["draft.v2"]},
    ],
)
def test_a_payload_of_the_declared_schema_or_one_like_it_is_taken(fields: dict[str, Any]) -> None:
    assert validated(look, message(**fields)) == Draft()


def test_a_payload_of_another_schema_is_refused_with_the_one_that_is_taken() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'draft\.v1' is not accepted; accepted: draft"):
        validated(look, message(payload_schema="draft.v1"))


async def test_an_answer_carries_the_declared_schema_and_what_the_handler_says() -> None:
    full = Agent("full")

    @full.on("look", payload_schema="review.v1")
    async def handle(draft: Draft) -> Outgoing[Review]:
        return Outgoing(
            Review(), intent="looked", evidence_refs=["doc-1"], ttl=900, type="a.result"
        )

    asked = message(recipient="full", intent="look", reply_to="agent.reply.x")
    reply = (await outcome_of(full, asked)).reply
    assert reply is not None
    assert (reply.intent, reply.payload_schema, reply.ttl) == ("looked", "review.v1", 900)
    assert (reply.evidence_refs, reply.type) == (["doc-1"], "a.result")
    assert (reply.sender, reply.recipient, reply.payload) == ("full", "someone", {"risk": "low"})
    assert reply.causality.parent_message_id == asked.message_id


@pytest.mark.parametrize(
    "fields", [{"reply_to": None}, {"reply_to": "agent.reply.x", "requires_response": False}]
)
async def test_nobody_is_answered_who_does_not_wait(fields: dict[str, Any]) -> None:
    outcome = await outcome_of(quality, message(intent="look", **fields))
    assert outcome == Ack()


async def test_none_is_an_empty_answer() -> None:
    @agent("silent")
    async def silent(draft: Draft) -> None: ...

    outcome = await outcome_of(silent.agent, message(recipient="silent", reply_to="agent.reply.x"))
    assert outcome.reply is not None
    assert (outcome.reply.payload, outcome.reply.message_type) == ({}, MessageType.RESPONSE)


def answering(answer: Any) -> Agent:
    @agent("odd")
    async def odd(draft: Draft) -> Outgoing[Review]:
        return answer  # type: ignore[no-any-return]

    return odd.agent


class Sharper(Review):
    """A review that says more."""

    score: float = 0.5


@pytest.mark.parametrize("answer", [Review(), Sharper(), Outgoing(Sharper())])
async def test_what_is_declared_or_a_kind_of_it_is_an_answer(answer: Any) -> None:
    reply = (await outcome_of(answering(answer), message(reply_to="agent.reply.x"))).reply
    assert reply is not None
    assert reply.payload["risk"] == "low"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "returned NoneType, it declares Review"),
        ({"risk": "low"}, "returned dict, it declares Review"),
        (Draft(), "returned Draft, it declares Review"),
        (Outgoing("text"), "returned str, it declares Review"),  # type: ignore[type-var]
        (Outgoing(Sharper(score=float("nan"))), "payload.score is nan"),
        (Outgoing(Review(), ttl=2**60), "ttl"),
        (Outgoing(Review(), type=""), "type"),
        (Outgoing(Review(), evidence_refs=[7]), "evidence_refs"),  # type: ignore[list-item]
    ],
)
async def test_an_answer_that_cannot_be_sent_is_an_error_of_the_agents_own(
    answer: Any, sentence: str
) -> None:
    with pytest.raises(WrongResultError) as raised:
        await outcome_of(answering(answer), message(reply_to="agent.reply.x"))
    assert sentence in str(raised.value)
    assert not raised.value.retryable
    assert counts_as_failure(raised.value)


async def test_an_answer_goes_to_the_caller_and_to_nobody_else() -> None:
    with pytest.raises(ConfigurationError, match=r"use 'await context\.publish"):
        await outcome_of(answering(Outgoing(Review(), to="other")), message())


async def test_what_is_for_nobody_is_acknowledged_with_a_reason() -> None:
    notes: list[str] = []
    delivery = Delivery(b"", Properties(), "q", message=message(MessageType.EVENT, intent="x"))
    assert await handler_of(Agent("deaf"), notes)(delivery) == Ack(ignored=True)
    assert notes == ["no handler of event 'x'"]


async def test_a_handler_gets_what_it_asks_for() -> None:
    seen: dict[str, Any] = {}

    @agent("curious")
    async def curious(draft: Draft, context: Context, *, message: AgentMessage) -> None:
        seen.update(context=context, message=message)

    asked = message(recipient="curious")
    await outcome_of(curious.agent, asked, **{"aa-attempt": 3, "aa-depth": 2})
    context = seen["context"]
    assert (context.message, context.attempt, context.depth) == (asked, 3, 2)
    assert seen["message"] is asked


@pytest.mark.parametrize("strange", [-5, "3", 2.0, True, None])
async def test_a_depth_nobody_of_ours_wrote_is_none(strange: object) -> None:
    seen: list[int] = []

    @agent("deep")
    async def deep(draft: Draft, context: Context) -> None:
        seen.append(context.depth)

    await outcome_of(deep.agent, message(recipient="deep"), **{"aa-depth": strange})
    assert seen == [0]


async def test_a_foreign_message_is_given_as_it_came() -> None:
    seen: list[RawMessage] = []

    @agent("bridge")
    async def bridge(raw: RawMessage, context: Context) -> None:
        seen.append(raw)
        await context.publish(Outgoing({"from": "bridge"}, to="quality"))

    outcome = await outcome_of(bridge.agent, None, ratio=0.5)
    assert seen == [RawMessage(body=b"raw", headers={"ratio": 0.5})]
    assert [sent.payload for sent in outcome.messages] == [{"from": "bridge"}]
    assert outcome.reply is None


async def test_time_goes_on_for_who_handles_a_foreign_message() -> None:
    left: list[float | None] = []

    @agent("bridge")
    async def bridge(raw: RawMessage, context: Context) -> None:
        left.append(context.remaining_seconds)

    handler = handler_of(bridge.agent)
    await handler._clock.advance(3600)
    await handler(Delivery(b"raw", Properties(), "agent.bridge"))
    assert left == [pytest.approx(300, abs=1)]


async def test_a_foreign_message_to_who_takes_none_is_refused() -> None:
    with pytest.raises(InvalidPayloadError, match="agent 'quality' takes no foreign messages"):
        await outcome_of(quality, None)


async def test_a_message_of_ours_to_who_takes_only_foreign_ones_is_refused() -> None:
    @agent("bridge")
    async def bridge(raw: RawMessage) -> None: ...

    with pytest.raises(InvalidPayloadError, match="no handler for request"):
        await outcome_of(bridge.agent, message(recipient="bridge", payload={"body": "x"}))


async def test_a_handler_that_returned_publishes_no_more() -> None:
    kept: list[Context] = []

    @agent("busy")
    async def busy(draft: Draft, context: Context) -> None:
        kept.append(context)
        await context.publish(Outgoing({}, to="quality"))

    outcome = await outcome_of(busy.agent, message(recipient="busy"))
    assert len(outcome.messages) == 1
    with pytest.raises(ConfigurationError, match="the handler has returned"):
        await kept[0].publish(Outgoing({}, to="quality"))


async def test_a_wrapped_coroutine_function_runs_on_the_loop() -> None:
    async def inner(draft: Draft) -> Review:
        return Review(risk=threading.current_thread().name)

    @functools.wraps(inner)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    declared = agent("wrapped")(wrapped).agent
    reply = (await outcome_of(declared, message(reply_to="agent.reply.x"))).reply
    assert reply is not None
    assert reply.payload == {"risk": threading.current_thread().name}


async def test_a_blocking_function_runs_beside_the_loop_with_its_context_variables() -> None:
    wish = contextvars.ContextVar("wish", default="none")
    wish.set("mine")
    name, value, daemon = await within(
        in_thread(
            lambda: (
                threading.current_thread().name,
                wish.get(),
                threading.current_thread().daemon,
            ),
            name="a",
        )
    )
    assert (name, value, daemon) == ("agent-a", "mine", True)


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (ValueError("x"), ValueError),
        (SystemExit(3), SystemExit),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (StopIteration(1), RuntimeError),
        (GeneratorExit(), RuntimeError),
        (asyncio.CancelledError(), asyncio.CancelledError),
    ],
)
async def test_whatever_a_blocking_function_raises_reaches_who_waits(
    raised: BaseException, seen: type[BaseException]
) -> None:
    def fail() -> None:
        raise raised

    with pytest.raises(seen):
        await within(in_thread(fail, name="a"))


async def test_a_blocking_function_that_nobody_waits_for_ends_by_itself() -> None:
    go, gone = threading.Event(), threading.Event()

    def late() -> None:
        go.wait(5)
        gone.set()

    waiting = asyncio.create_task(in_thread(late, name="a"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    assert await asyncio.to_thread(gone.wait, 5)
