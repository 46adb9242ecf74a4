"""Asking: every way in which a question can end, and nothing left behind."""

import asyncio
from typing import Any

import pytest

from amqp_agents.agent import Agent, agent
from amqp_agents.brokers.base import Publishing
from amqp_agents.client import Client
from amqp_agents.config import RetryPolicy
from amqp_agents.context import Context
from amqp_agents.errors import (
    AgentCommunicationError,
    BrokerConnectionError,
    CapacityExceededError,
    ConfigurationError,
    ErrorCode,
    InvalidPayloadError,
    NonRetryableError,
    OutcomeUnknownError,
    PublishRejectedError,
    RequestTimeoutError,
    UnroutableMessageError,
)
from amqp_agents.protocol import AgentMessage, HybridMessage, MessageType
from amqp_agents.protocol.properties import Properties
from amqp_agents.requester import Requester, result_of
from tests.unit.stage import Draft, Review, Stage, on_stage, within


@agent("quality")
async def review(draft: Draft) -> Review:
    if draft.text == "bad":
        raise InvalidPayloadError("not like this")
    return Review(risk=draft.text or "low")


@agent("sleeper", time_limit_seconds=None)
async def sleep(draft: Draft) -> Review:
    await asyncio.Event().wait()
    raise AssertionError("nothing ends it")


def requester(stage: Stage) -> Requester:
    return stage.client.requester


def nothing_left(stage: Stage) -> bool:
    return not requester(stage).pending and not requester(stage)._correlated


async def test_an_answer_is_the_model_the_handler_declares() -> None:
    async with on_stage(review) as stage:
        assert await stage.ask(review, Draft(text="high")) == Review(risk="high")
        assert nothing_left(stage)


async def test_by_name_an_answer_is_a_dict_or_what_the_caller_names() -> None:
    async with on_stage(review) as stage:
        assert await stage.ask("quality", {"text": "a"}) == {"risk": "a"}
        assert await stage.ask("quality", Draft(text="a"), returns=Review) == Review(risk="a")


async def test_an_answer_that_is_not_what_the_caller_names_is_told_by_field() -> None:
    async with on_stage(review) as stage:
        with pytest.raises(InvalidPayloadError, match="the answer of quality is not a Strict: n"):
            await stage.ask("quality", {}, returns=Strict)
        assert nothing_left(stage)


class Strict(Review):
    """What nobody answers."""

    n: int


async def test_fifty_questions_at_once_get_their_own_answers() -> None:
    async with on_stage(review) as stage:
        questions = [stage.client.request(review, Draft(text=str(n))) for n in range(50)]
        answers = await within(asyncio.gather(*questions))
        assert [answer.risk for answer in answers] == [str(n) for n in range(50)]
        assert nothing_left(stage)


async def test_an_error_answer_is_raised_with_all_it_says() -> None:
    @agent("full", retry=RetryPolicy(max_attempts=1))
    async def full(draft: Draft) -> None:
        raise CapacityExceededError("no room", suggested_retry_after=9)

    async with on_stage(full, review) as stage:
        with pytest.raises(AgentCommunicationError) as raised:
            await stage.ask(full, Draft())
        assert not isinstance(raised.value, NonRetryableError)
        assert (raised.value.code, raised.value.failed_agent) == (
            ErrorCode.CAPACITY_EXCEEDED,
            "full",
        )
        assert raised.value.suggested_retry_after == 9
        with pytest.raises(NonRetryableError) as final:
            await stage.ask(review, Draft(text="bad"))
        assert final.value.code is ErrorCode.INVALID_PAYLOAD
        assert nothing_left(stage)


@pytest.mark.parametrize(
    "payload", [{}, {"code": 7, "message": None}, {"code": "NEW", "retryable": 1}]
)
def test_an_error_answer_that_is_badly_made_is_still_an_error(payload: dict[str, Any]) -> None:
    answer = AgentMessage(sender="other", message_type=MessageType.ERROR, payload=payload)
    with pytest.raises(NonRetryableError) as raised:
        result_of(answer, Review)
    assert (raised.value.code, raised.value.failed_agent) == (ErrorCode.UNKNOWN, "other")


async def test_an_agent_nobody_declared_is_known_at_once() -> None:
    async with on_stage(review) as stage:
        with pytest.raises(UnroutableMessageError, match="agent 'nobody' has no queue"):
            await stage.ask("nobody", {}, timeout_seconds=1000)
        assert nothing_left(stage)


async def test_no_answer_in_time_is_a_timeout_within_its_limit() -> None:
    async with on_stage(sleep) as stage:
        started = stage.clock.time()
        call = asyncio.create_task(stage.client.request(sleep, Draft(), timeout_seconds=10))
        await stage.advance(9.99)
        assert not call.done()
        await stage.advance(0.12)
        with pytest.raises(RequestTimeoutError, match="no answer from 'sleeper' within 10 s"):
            await within(call)
        assert stage.clock.time() - started < 10.2
        assert nothing_left(stage)


async def test_a_thousand_timeouts_leave_nothing_behind() -> None:
    async with on_stage(sleep) as stage:
        calls = [
            asyncio.create_task(stage.client.request(sleep, Draft(), timeout_seconds=2))
            for _ in range(1000)
        ]
        await asyncio.sleep(0)
        await stage.advance(0)
        assert len(requester(stage).pending) == 1000
        await stage.advance(3)
        ends = await within(asyncio.gather(*calls, return_exceptions=True))
        assert {type(end) for end in ends} == {RequestTimeoutError}
        assert nothing_left(stage)


async def test_a_caller_that_is_cancelled_leaves_nothing_behind() -> None:
    async with on_stage(sleep) as stage:
        call = asyncio.create_task(stage.client.request(sleep, Draft()))
        await stage.advance(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert nothing_left(stage)


@pytest.mark.parametrize("seconds", [0, -1.0])
async def test_no_time_is_no_answer(seconds: float) -> None:
    async with on_stage(review) as stage:
        with pytest.raises(RequestTimeoutError):
            await stage.ask(review, Draft(), timeout_seconds=seconds)
        assert stage.journal.entries == []


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
async def test_a_time_that_is_no_number_is_refused(seconds: float) -> None:
    async with on_stage(review) as stage:
        with pytest.raises(ConfigurationError, match="timeout_seconds must be a number"):
            await stage.ask(review, Draft(), timeout_seconds=seconds)


@pytest.mark.parametrize(
    ("target", "payload", "sentence"),
    [
        (review, Review(), "takes a Draft, not a Review"),
        (review, {"text": "x"}, "takes a Draft, not a dict"),
        ("quality", [1], "a payload is an object"),
        ("quality", {1: "x"}, "JSON keys are text"),
        ("quality", {"x": float("nan")}, "payload.x is nan"),
    ],
)
async def test_a_question_that_cannot_be_asked_is_refused_at_the_call(
    target: Any, payload: Any, sentence: str
) -> None:
    async with on_stage(review) as stage:
        with pytest.raises(InvalidPayloadError) as raised:
            await stage.ask(target, payload)
        assert sentence in str(raised.value)
        assert nothing_left(stage)


@pytest.mark.parametrize("target", [None, 7, review.function, Agent("quality"), "no.such.id"])
async def test_only_agents_can_be_asked(target: Any) -> None:
    async with on_stage(review) as stage:
        with pytest.raises(ConfigurationError):
            await stage.ask(target, Draft())


async def test_a_broker_that_is_away_is_told_as_such_within_the_limit() -> None:
    async with on_stage(review) as stage:
        stage.faults.disconnect()
        with pytest.raises(BrokerConnectionError):
            await stage.ask(review, Draft(), during=3.2, timeout_seconds=3)
        assert nothing_left(stage)


async def test_a_question_that_was_refused_is_told_as_such() -> None:
    async with on_stage(review) as stage:
        stage.faults.reject(times=10**6, exchange="agent.direct")
        with pytest.raises(PublishRejectedError):
            await stage.ask(review, Draft(), during=3.2, timeout_seconds=3)
        assert nothing_left(stage)


async def test_a_question_whose_confirm_is_lost_may_or_may_not_have_arrived() -> None:
    async with on_stage(review) as stage:
        stage.faults.lose(times=10**6, exchange="agent.direct", stored=False)
        with pytest.raises(OutcomeUnknownError):
            await stage.ask(review, Draft(), during=3.2, timeout_seconds=3)
        assert nothing_left(stage)


async def test_an_answer_counts_even_if_the_confirm_of_its_question_never_came() -> None:
    async with on_stage(review) as stage:
        stage.faults.lose(times=10**6, exchange="agent.direct")
        assert await stage.ask(review, Draft(), during=3.2, timeout_seconds=3) == Review()
        assert nothing_left(stage)


async def test_a_question_survives_a_lost_connection() -> None:
    go = asyncio.Event()

    @agent("steady")
    async def steady(draft: Draft) -> Review:
        await go.wait()
        return Review()

    async with on_stage(steady) as stage:
        call = asyncio.create_task(stage.client.request(steady, Draft()))
        await stage.advance(0)
        stage.faults.disconnect()
        await stage.advance(1)
        stage.faults.reconnect()
        go.set()
        await stage.advance(1)
        assert await within(call) == Review()


async def test_a_late_answer_is_counted_and_offered_to_the_hook() -> None:
    late: list[AgentMessage] = []
    go = asyncio.Event()

    @agent("slow", time_limit_seconds=None)
    async def slow(draft: Draft) -> Review:
        await go.wait()
        return Review(risk="late")

    async with on_stage(slow) as stage:
        requester(stage)._on_late_reply = late.append
        with pytest.raises(RequestTimeoutError):
            await stage.ask(slow, Draft(), during=2.2, timeout_seconds=2)
        go.set()
        await stage.advance(0)
        assert [message.payload for message in late] == [{"risk": "late"}]
        assert stage.counted("late_replies") == 1


async def test_a_hook_that_raises_takes_nothing_down_with_it() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fail(message: AgentMessage) -> None:
        raise ZeroDivisionError("in a hook")

    async with on_stage(review) as stage:
        requester(stage)._on_late_reply = fail
        stray = AgentMessage(
            sender="quality", recipient="client", message_type=MessageType.RESPONSE
        )
        address = requester(stage)._replies
        assert address is not None
        await stage.client.publisher.reply(stray, to=address.address, timeout_seconds=1)
        await stage.advance(0)
        assert isinstance(told[0]["exception"], ZeroDivisionError)
        assert await stage.ask(review, Draft()) == Review()
        assert await stage.broker.depth(address.address) == 0


async def test_of_two_answers_the_first_counts() -> None:
    async with on_stage(review) as stage:
        stage.faults.lose(times=1, exchange="agent.reply")  # stored, and so sent twice
        assert await stage.ask(review, Draft(), during=1) == Review()
        assert stage.counted("late_replies") == 1


async def test_an_answer_nobody_can_read_is_counted_and_acknowledged() -> None:
    async with on_stage(review) as stage:
        junk = Publishing("agent.reply", requester(stage).instance, b"junk", Properties())
        await stage.broker.publish(junk, timeout_seconds=1)
        await stage.advance(0)
        assert stage.counted("late_replies") == 1
        assert await stage.broker.depth(f"agent.reply.{requester(stage).instance}") == 0


async def test_an_answer_without_a_cause_is_known_by_its_correlation() -> None:
    @agent("foreign", time_limit_seconds=None)
    async def foreign(draft: Draft, context: Context) -> None:
        question = context.message
        answer = AgentMessage(
            sender="foreign",
            recipient=question.sender,
            message_type=MessageType.RESPONSE,
            correlation_id=question.correlation_id,
            payload={"risk": "by hand"},
        )
        publisher = stage.client.publisher
        await publisher.reply(answer, to=question.reply_to or "", timeout_seconds=1)

    async with on_stage(foreign) as stage:
        assert await stage.ask("foreign", {}) == {"risk": "by hand"}


async def test_questions_of_one_conversation_are_told_apart() -> None:
    async with on_stage(review) as stage:
        questions = [
            AgentMessage(
                sender="x",
                recipient="quality",
                message_type="request",
                correlation_id="conversation",
                payload={"text": text},
            )
            for text in ("one", "two")
        ]
        answers = await within(asyncio.gather(*(stage.client.exchange(q) for q in questions)))
        assert [answer.payload["risk"] for answer in answers] == ["one", "two"]
        assert nothing_left(stage)


async def test_one_message_does_not_wait_twice_at_once() -> None:
    async with on_stage(sleep) as stage:
        question = AgentMessage(sender="x", recipient="sleeper", message_type="request")
        first = asyncio.create_task(stage.client.exchange(question))
        await stage.advance(0)
        with pytest.raises(ConfigurationError, match="waits for its answer already"):
            await stage.client.exchange(question)
        assert list(requester(stage).pending) == [question.message_id]
        first.cancel()


async def test_an_answer_goes_where_a_hybrid_message_says() -> None:
    async with on_stage(review) as stage:
        inbox: list[AgentMessage] = []
        other = Client(stage.broker, name="other", on_late_reply=inbox.append)
        await other.open()
        replies = other.requester._replies
        assert replies is not None
        base = AgentMessage(sender="x", recipient="quality", message_type="request")
        hybrid = HybridMessage(base=base, reply_to=replies.address)
        await stage.client.publish(hybrid.to_message())
        await stage.advance(0)
        assert [message.causality.parent_message_id for message in inbox] == [base.message_id]
        await other.close()


async def test_a_closed_client_says_so() -> None:
    async with on_stage(review) as stage:
        await stage.client.close()
        with pytest.raises(ConfigurationError, match="this client is closed"):
            await stage.ask(review, Draft())
        await stage.client.close()


async def test_direct_replies_answer_too_and_a_caller_that_left_is_no_error() -> None:
    async with on_stage(review) as stage:
        direct = Client(stage.broker, name="direct")
        await direct.open(direct=True)
        assert await within(direct.request(review, Draft())) == Review()
        await direct.close()
