from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel

from amqp_agents.clock import ManualClock
from amqp_agents.context import Context, Outgoing, compose_message, payload_dict
from amqp_agents.errors import ConfigurationError, InvalidPayloadError
from amqp_agents.protocol import AgentMessage, AgentRef, MessageType, Policy, RecipientMode

ME = AgentRef("me", "worker")


class Asked:
    """Notes what a context asks for, and answers nothing."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.sent: list[tuple[AgentMessage, int]] = []

    async def ask(self, target: Any, payload: Any, **options: Any) -> Any:
        self.questions.append({"target": target, "payload": payload, **options})

    async def send(self, message: AgentMessage, *, depth: int) -> None:
        self.sent.append((message, depth))


def parent_message(clock: ManualClock, **fields: Any) -> AgentMessage:
    return AgentMessage(
        sender="caller",
        recipient="me",
        message_type="request",
        timestamp=datetime.fromtimestamp(clock.time(), UTC),
        **fields,
    )


def context_of(message: AgentMessage, clock: ManualClock, **facts: Any) -> tuple[Context, Asked]:
    asked = Asked()
    return Context(message, sender=ME, asking=asked, clock=clock, **facts), asked


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(frozen=True)


async def test_a_question_takes_no_more_time_than_the_message_has_left(clock: ManualClock) -> None:
    context, asked = context_of(parent_message(clock, deadline_ms=10_000), clock)
    await clock.advance(4)
    await context.request("other", {}, timeout_seconds=30)
    await context.request("other", {}, timeout_seconds=2)
    assert [question["timeout_seconds"] for question in asked.questions] == [
        pytest.approx(6, abs=0.01),
        2,
    ]


async def test_a_message_that_never_expires_limits_no_question(clock: ManualClock) -> None:
    context, asked = context_of(parent_message(clock, ttl=None), clock)
    await context.request("other", {}, timeout_seconds=7)
    assert asked.questions[0]["timeout_seconds"] == 7
    assert (context.deadline, context.remaining_seconds) == (None, None)


async def test_a_question_names_its_cause_and_is_one_hop_deeper(clock: ManualClock) -> None:
    message = parent_message(clock)
    context, asked = context_of(message, clock, depth=3)
    await context.request("other", {"a": 1}, intent="look")
    (question,) = asked.questions
    assert (question["parent"], question["depth"], question["sender"]) == (message, 4, ME)
    assert (question["intent"], question["payload"]) == ("look", {"a": 1})


def test_the_deadline_is_a_moment_that_stays(clock: ManualClock) -> None:
    message = parent_message(clock, ttl=60, deadline_ms=1500)
    context, _ = context_of(message, clock)
    assert context.deadline == message.timestamp + timedelta(seconds=1.5)


async def test_the_deadline_stays_where_it_was_when_it_is_over(clock: ManualClock) -> None:
    message = parent_message(clock, ttl=60)
    context, _ = context_of(message, clock)
    await clock.advance(100)
    assert context.deadline == message.timestamp + timedelta(seconds=60)
    assert context.remaining_seconds == 0


async def test_the_time_of_a_replayed_message_counts_from_its_replay(clock: ManualClock) -> None:
    message = parent_message(clock, ttl=60)
    await clock.advance(3600)
    context, asked = context_of(message, clock, clock_ms=int(clock.time() * 1000))
    await context.request("other", {}, timeout_seconds=30)
    assert asked.questions[0]["timeout_seconds"] == 30
    assert context.remaining_seconds == pytest.approx(60, abs=0.01)
    assert context.deadline is not None
    assert context.deadline.timestamp() == pytest.approx(clock.time() + 60, abs=0.01)


def test_a_deadline_beyond_the_calendar_is_its_end(clock: ManualClock) -> None:
    context, _ = context_of(parent_message(clock, ttl=None, deadline_ms=2**53 - 1), clock)
    assert context.deadline == datetime.max.replace(tzinfo=UTC)


async def test_what_is_published_waits_for_the_handler_to_return(clock: ManualClock) -> None:
    context, asked = context_of(parent_message(clock), clock)
    await context.publish(Outgoing({"n": 1}, to="other"))
    assert [message.payload for message in context.outbox] == [{"n": 1}]
    assert asked.sent == []


async def test_what_is_published_immediately_does_not_wait(clock: ManualClock) -> None:
    context, asked = context_of(parent_message(clock), clock, depth=2)
    await context.publish(Outgoing({"n": 1}, to="other"), immediately=True)
    assert context.outbox == []
    ((message, depth),) = asked.sent
    assert (message.payload, depth) == ({"n": 1}, 3)


async def test_what_json_cannot_carry_is_refused_at_the_call(clock: ManualClock) -> None:
    context, _ = context_of(parent_message(clock), clock)
    with pytest.raises(InvalidPayloadError, match=r"payload\.scores\[1\] is nan"):
        await context.publish(Outgoing({"scores": [1.0, float("nan")]}, to="other"))
    assert context.outbox == []


def test_a_message_follows_its_cause() -> None:
    cause = AgentMessage(
        sender="caller",
        recipient="me",
        message_type="request",
        trace_id="t-1",
        task_id="task",
        context_id="ticket",
        causality={"parent_message_id": "older", "step_id": "step-2"},
        policy=Policy(sensitivity="high"),
    )
    message = compose_message(Outgoing({}, to="other"), sender=ME, parent=cause)
    assert (message.trace_id, message.task_id, message.context_id) == ("t-1", "task", "ticket")
    assert message.causality.parent_message_id == cause.message_id
    assert message.causality.step_id == "step-2"
    assert message.policy.sensitivity == "high"
    assert message.message_id != cause.message_id


@pytest.mark.parametrize(
    ("target", "kind", "mode", "intent"),
    [
        ({"to": "other", "intent": "look"}, MessageType.DIRECT, RecipientMode.DIRECT, "look"),
        ({"event": "x.closed"}, MessageType.EVENT, RecipientMode.SUBSCRIBE, "x.closed"),
        ({"broadcast": "pause"}, MessageType.BROADCAST, RecipientMode.BROADCAST, "pause"),
    ],
)
def test_the_target_says_what_kind_of_message_it_is(
    target: dict[str, str], kind: MessageType, mode: RecipientMode, intent: str
) -> None:
    message = compose_message(Outgoing({}, **target), sender=ME)  # type: ignore[arg-type]
    assert (message.message_type, message.recipient_mode, message.intent) == (kind, mode, intent)
    assert (message.sender, message.sender_role) == ("me", "worker")


def test_a_message_needs_one_target() -> None:
    with pytest.raises(ConfigurationError, match="publish needs a target"):
        compose_message(Outgoing({}), sender=ME)
    with pytest.raises(ConfigurationError, match="one target"):
        Outgoing({}, to="a", event="b")


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"to": "no.such.id"}, "recipient"),
        ({"to": ""}, "recipient"),
        ({"to": "a", "priority": 11}, "priority"),
        ({"to": "a", "ttl": -1}, "ttl"),
        ({"to": "a", "ttl": "soon"}, "ttl"),
        ({"to": "a", "type": "x" * 256}, "type"),
        ({"to": "a", "evidence_refs": [1]}, "evidence_refs"),
        ({"to": "a", "sensitivity": "secret"}, "sensitivity"),
    ],
)
def test_a_field_that_cannot_be_is_named_in_an_error_of_ours(
    wrong: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidPayloadError, match=place):
        compose_message(Outgoing({}, **wrong), sender=ME)


@pytest.mark.parametrize(
    ("of_the_cause", "wanted", "written"),
    [
        ("normal", "high", "high"),
        ("high", "low", "high"),
        ("normal", "low", "normal"),
        ("low", "normal", "normal"),
        (None, "low", "low"),
    ],
)
def test_the_sensitivity_of_a_cause_may_be_raised_and_never_lowered(
    of_the_cause: Any, wanted: str, written: str
) -> None:
    policy = Policy(sensitivity=of_the_cause) if of_the_cause else None
    given = {"sender": "a", "recipient": "me", "type": "message", "policy": policy}
    cause = AgentMessage.model_validate(given) if policy else None
    message = compose_message(Outgoing({}, to="b", sensitivity=wanted), sender=ME, parent=cause)
    assert message.policy.sensitivity == written


async def test_what_is_published_after_the_handler_returned_is_refused_instead_of_lost(
    clock: ManualClock,
) -> None:
    context, asked = context_of(parent_message(clock), clock)
    context.returned = True
    with pytest.raises(ConfigurationError, match="publish with immediately=True"):
        await context.publish(Outgoing({}, to="other"))
    await context.publish(Outgoing({}, to="other"), immediately=True)
    assert len(asked.sent) == 1


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")


class Scored(BaseModel):
    score: float
    at: datetime | None = None


class Wrapped(RootModel[dict[str, int]]):
    """A model that is an object all the same."""


class Listed(RootModel[list[int]]):
    """A model that is no object."""


class Unwritable(BaseModel):
    what: Any


@pytest.mark.parametrize(
    ("payload", "data"),
    [
        (None, {}),
        ({"a": 1}, {"a": 1}),
        (Scored(score=0.5, at=datetime(2026, 1, 1, tzinfo=UTC)), None),
        (Wrapped({"a": 1}), {"a": 1}),
        (Aliased(orderId=7), {"orderId": 7}),
    ],
)
def test_models_dicts_and_none_are_payloads(payload: Any, data: Any) -> None:
    expected = {"score": 0.5, "at": "2026-01-01T00:00:00Z"} if data is None else data
    assert payload_dict(payload) == expected


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ([1], "a payload is an object: give a pydantic model, a dict or None, not list"),
        ("text", "not str"),
        (Listed([1]), "not Listed"),
        ({1: "a"}, "JSON keys are text"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "payload.at is a datetime"),
        ({"x": {"y": [float("inf")]}}, "payload.x.y[0] is inf"),
        ({"x": "\ud800"}, "payload.x holds half a surrogate pair"),
        (Scored(score=float("nan")), "payload.score is nan"),
        (Unwritable(what=object()), "Unwritable cannot be written as JSON"),
    ],
)
def test_anything_else_is_refused_with_its_place(payload: Any, sentence: str) -> None:
    with pytest.raises(InvalidPayloadError) as raised:
        payload_dict(payload)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("intent", ["", "a b", "ticket.*", "#", ".x", "x" * 300])
@pytest.mark.parametrize("kind", ["event", "broadcast"])
def test_an_intent_nobody_could_declare_is_refused_where_it_is_written(
    kind: str, intent: str
) -> None:
    with pytest.raises(ConfigurationError, match="intent"):
        Outgoing({}, **{kind: intent})
