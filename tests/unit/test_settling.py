"""What is true once a delivery is settled, whatever the broker did meanwhile."""

import asyncio
from typing import Any

import pytest

from amqp_agents.agent import agent
from amqp_agents.brokers.base import Publishing
from amqp_agents.config import RetryPolicy
from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import (
    AgentCommunicationError,
    ErrorCode,
    InvalidPayloadError,
    NonRetryableError,
    RequestTimeoutError,
)
from amqp_agents.injection import RawMessage
from amqp_agents.protocol import AgentMessage, MessageType
from amqp_agents.protocol.properties import Properties
from tests.unit.stage import Draft, Review, Stage, header, on_stage, within

ONCE = RetryPolicy(max_attempts=1)
NEVER_STORED: dict[str, dict[str, bool]] = {"lose": {"stored": False}}


@agent("quality")
async def review(draft: Draft) -> Review:
    return Review()


@agent("notary")
async def note(draft: Draft) -> None: ...


@agent("teller")
async def tell(draft: Draft, context: Context) -> Review:
    for text in ("one", "two"):
        await context.publish(Outgoing(Draft(text=text), to="notary"))
    if draft.text == "fail":
        raise InvalidPayloadError("after publishing")
    if draft.text == "nobody":
        await context.publish(Outgoing(Draft(), to="nobody"))
    if draft.text == "secret":
        await context.publish(Outgoing(Draft(), broadcast="all", sensitivity="high"))
    if draft.text == "at once":
        await context.publish(Outgoing(Draft(text="now"), to="notary"), immediately=True)
        raise InvalidPayloadError("after publishing")
    return Review()


@agent("failing", retry=ONCE)
async def fail(draft: Draft) -> Review:
    raise ValueError(f"cannot do {draft.text}")


def published(stage: Stage) -> list[Publishing]:
    """Every publish of the broker from now on, in order."""
    seen: list[Publishing] = []
    store = stage.broker._store

    def noting(publishing: Publishing) -> None:
        seen.append(publishing)
        store(publishing)

    stage.broker._store = noting  # type: ignore[method-assign]
    return seen


async def test_the_answer_is_sent_before_the_delivery_is_acknowledged() -> None:
    async with on_stage(review) as stage:
        stage.faults.reject(exchange="agent.reply")
        call = asyncio.create_task(stage.client.request(review, Draft()))
        await stage.advance(0)
        assert "handled" not in stage.journal.what("quality")
        subscriptions = stage.serving.consumers[0].intake.subscriptions
        assert sum(len(each._holding) for each in subscriptions) == 1  # type: ignore[attr-defined]
        await stage.advance(1)
        assert await within(call) == Review()
        assert sum(len(each._holding) for each in subscriptions) == 0  # type: ignore[attr-defined]


async def test_messages_leave_after_the_handler_and_before_its_answer() -> None:
    async with on_stage(tell, note) as stage:
        seen = published(stage)
        assert await stage.ask(tell, Draft()) == Review()
        assert [p.routing_key for p in seen[:3]] == ["teller", "notary", "notary"]
        assert [p.exchange for p in seen].index("agent.reply") == 3
        assert stage.journal.what("notary") == ["handled", "handled"]


async def test_nothing_leaves_if_the_handler_raises() -> None:
    async with on_stage(tell, note) as stage:
        with pytest.raises(NonRetryableError):
            await stage.ask(tell, Draft(text="fail"))
        assert stage.journal.what("notary") == []


async def test_what_was_sent_immediately_stays_sent_if_the_handler_raises() -> None:
    async with on_stage(tell, note) as stage:
        with pytest.raises(NonRetryableError):
            await stage.ask(tell, Draft(text="at once"))
        assert stage.journal.what("notary") == ["handled"]


async def test_a_message_to_nobody_is_a_dead_letter_and_an_error_to_the_caller() -> None:
    async with on_stage(tell, note) as stage:
        with pytest.raises(NonRetryableError, match="agent 'nobody' has no queue") as raised:
            await stage.ask(tell, Draft(text="nobody"))
        assert raised.value.code is ErrorCode.DEPENDENCY_FAILED
        (dead,) = await stage.dead_letters("teller")
        assert header(dead, "aa-fault-type") == "UnroutableMessageError"
        assert stage.counted("dead_letters", "teller", "DEPENDENCY_FAILED") == 1


async def test_a_message_nobody_may_see_is_a_dead_letter_too() -> None:
    async with on_stage(tell, note) as stage:
        with pytest.raises(NonRetryableError, match="high sensitivity is never broadcast"):
            await stage.ask(tell, Draft(text="secret"))
        assert len(await stage.dead_letters("teller")) == 1


async def test_messages_wait_for_the_broker_and_leave_once_each() -> None:
    runs = []

    @agent("once")
    async def once(draft: Draft, context: Context) -> Review:
        runs.append(draft)
        await context.publish(Outgoing(Draft(text="kept"), to="notary"))
        stage.faults.reject(times=50, exchange="agent.direct")
        return Review()

    async with on_stage(once, note) as stage:
        assert await stage.ask(once, Draft(), during=120, timeout_seconds=300) == Review()
        assert len(runs) == 1
        assert stage.journal.what("notary") == ["handled"]


async def test_a_caller_that_left_is_counted_and_its_request_acknowledged() -> None:
    async with on_stage(review) as stage:
        request = AgentMessage(
            sender="gone", recipient="quality", message_type="request", reply_to="agent.reply.gone"
        )
        await stage.client.publish(request)
        await stage.advance(0)
        assert stage.counted("undelivered_replies", "quality") == 1
        assert stage.counted("deliveries", "quality", "handled") == 1
        assert await stage.broker.depth("agent.quality") == 0
        assert await stage.dead_letters("quality") == []


@pytest.mark.parametrize("address", ["agent.quality", "https://hooks.example/x", "amq.gen-3"])
async def test_no_answer_is_written_to_an_address_that_is_not_ours(address: str) -> None:
    async with on_stage(review) as stage:
        request = AgentMessage(
            sender="x", recipient="quality", message_type="request", reply_to=address
        )
        await stage.client.publish(request)
        await stage.advance(0)
        assert stage.counted("undelivered_replies", "quality") == 1
        assert stage.counted("deliveries", "quality", "handled") == 1


async def test_an_answer_is_tried_until_the_caller_gives_up_and_no_longer() -> None:
    async with on_stage(review) as stage:
        stage.faults.reject(times=10**6, exchange="agent.reply")
        with pytest.raises(RequestTimeoutError):
            await stage.ask(review, Draft(), during=6, timeout_seconds=5)
        assert stage.counted("undelivered_replies", "quality") == 1
        assert stage.counted("deliveries", "quality", "handled") == 1


@pytest.mark.parametrize("answer", [{"n": float("nan")}, {"n": object()}, {1: "x"}])
async def test_an_answer_json_cannot_carry_is_a_dead_letter_and_an_error(
    answer: dict[Any, Any],
) -> None:
    @agent("odd")
    async def odd(draft: Draft) -> dict[str, Any]:
        return answer

    async with on_stage(odd) as stage:
        with pytest.raises(NonRetryableError) as raised:
            await stage.ask(odd, Draft())
        assert raised.value.code is ErrorCode.DEPENDENCY_FAILED
        assert len(await stage.dead_letters("odd")) == 1


async def test_an_answer_over_the_limit_is_a_dead_letter_and_an_error() -> None:
    @agent("wordy")
    async def wordy(draft: Draft) -> dict[str, str]:
        return {"text": "x" * 5000}

    async with on_stage(wordy, max_body_bytes=4096) as stage:
        with pytest.raises(NonRetryableError, match="max_body_bytes"):
            await stage.ask(wordy, Draft())
        (dead,) = await stage.dead_letters("wordy")
        assert header(dead, "aa-fault-code") == "INVALID_PAYLOAD"


async def test_an_answer_of_another_type_than_declared_is_told_as_the_agents_fault() -> None:
    @agent("liar")
    async def liar(draft: Draft) -> Review:
        return Draft()  # type: ignore[return-value]

    async with on_stage(liar) as stage:
        with pytest.raises(NonRetryableError, match="returned Draft, it declares Review"):
            await stage.ask(liar, Draft())
        assert len(await stage.dead_letters("liar")) == 1


async def test_none_is_an_empty_success_to_who_waits() -> None:
    async with on_stage(note) as stage:
        assert await stage.ask("notary", {"text": "x"}) == {}
        assert await stage.ask(note, Draft()) is None


@pytest.mark.parametrize("failing", ["reject", "lose"])
async def test_a_retry_that_cannot_be_parked_keeps_the_original(failing: str) -> None:
    @agent("flaky", retry=RetryPolicy(max_attempts=2))
    async def flaky(draft: Draft, context: Context) -> dict[str, int]:
        if context.attempt == 1:
            raise ValueError("once")
        return {"attempt": context.attempt}

    async with on_stage(flaky) as stage:
        getattr(stage.faults, failing)(
            times=60, exchange="agent.delay", **NEVER_STORED.get(failing, {})
        )
        call = asyncio.create_task(stage.client.request(flaky, Draft(), timeout_seconds=280))
        await stage.advance(5)
        assert stage.counted("deliveries", "flaky", "retried") == 0
        await stage.advance(120)
        assert await within(call) == {"attempt": 2}
        assert stage.counted("deliveries", "flaky", "retried") == 1


@pytest.mark.parametrize("failing", ["reject", "lose"])
async def test_a_dead_letter_that_cannot_be_parked_is_kept_paced_and_parked_in_the_end(
    failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with on_stage(fail) as stage:
        getattr(stage.faults, failing)(
            times=60, exchange="agent.dlx", **NEVER_STORED.get(failing, {})
        )
        call = asyncio.create_task(stage.client.request(fail, Draft(), timeout_seconds=280))
        await stage.advance(5)
        assert await stage.dead_letters("failing") == []
        assert await stage.broker.depth("agent.failing") == 0  # it is held, not given back
        assert not call.done()
        await stage.advance(120)
        with pytest.raises(AgentCommunicationError, match="cannot do"):
            await within(call)
        assert len(await stage.dead_letters("failing")) == 1
    unsettled = [r for r in caplog.records if getattr(r, "event", "") == "delivery_unsettled"]
    assert 0 < len(unsettled) < 10


async def test_a_dead_letter_queue_that_is_gone_is_waited_for() -> None:
    async with on_stage(fail) as stage:
        stage.broker.vhost.delete_queue("agent.failing.dlq")
        stage.broker.vhost.delete_queue("agent.lost")
        await stage.put(AgentMessage(sender="x", recipient="failing", type="message"), "failing")
        await stage.advance(20)
        assert stage.counted("deliveries", "failing", "dead-lettered") == 0
        await stage.broker.apply(stage.app.topology())
        await stage.advance(60)
        assert stage.counted("deliveries", "failing", "dead-lettered") == 1
        assert len(await stage.dead_letters("failing")) == 1


@pytest.mark.parametrize("exchange", ["agent.dlx", "agent.delay"])
async def test_a_lost_delivery_leaves_no_copy_behind(exchange: str) -> None:
    retry = ONCE if exchange == "agent.dlx" else RetryPolicy()

    @agent("unlucky", retry=retry)
    async def unlucky(draft: Draft) -> None:
        raise ValueError("x")

    async with on_stage(unlucky) as stage:
        stage.faults.reject(times=10**6, exchange=exchange)
        message = AgentMessage(sender="x", recipient="unlucky", type="message", ttl=None)
        await stage.put(message, "unlucky")
        await stage.advance(40)
        stage.faults.disconnect()
        await stage.advance(200)
        assert stage.counted("lost_settlements", "unlucky") == 1
        assert stage.counted("deliveries", "unlucky", "dead-lettered") == 0
        assert stage.counted("deliveries", "unlucky", "retried") == 0
        assert stage.counted("deliveries", "unlucky", "released") == 1
        assert stage.serving.consumers[0]._handlings == set()


async def test_messages_of_a_lost_delivery_are_left_to_its_next_run() -> None:
    runs: list[Draft] = []

    @agent("teller")
    async def unlucky(draft: Draft, context: Context) -> None:
        await context.publish(Outgoing(Draft(), to="notary"))
        if not runs:
            stage.faults.reject(times=40, exchange="agent.direct")
        runs.append(draft)

    async with on_stage(unlucky, note, publish_timeout_seconds=2) as stage:
        message = AgentMessage(sender="x", recipient="teller", type="message", ttl=None)
        await stage.put(message, "teller")
        await stage.advance(5)
        stage.faults.disconnect()
        await stage.advance(100)
        assert stage.counted("deliveries", "teller", "released") == 1
        stage.faults.reconnect()
        await stage.advance(60)
        assert stage.journal.what("notary") == ["handled"]
        assert len(runs) == 2


async def test_a_message_no_copy_can_carry_goes_to_the_dead_letters_by_the_brokers_hand() -> None:
    @agent("bridge", retry=ONCE)
    async def bridge(raw: RawMessage) -> None:
        raise ValueError("x")

    for declared in (review, bridge):
        async with on_stage(declared) as stage:
            stage.broker._max_body_bytes = 10_000
            huge = Publishing("agent.direct", declared.agent_name, b"x" * 8000, Properties())
            await stage.broker.publish(huge, timeout_seconds=1)
            stage.broker._max_body_bytes = 4096
            await stage.advance(1)
            (dead,) = await stage.dead_letters(declared.agent_name)
            assert dead.body == huge.body
            assert header(dead, "x-first-death-reason") == "rejected"
            assert stage.counted("deliveries", declared.agent_name, "dead-lettered") == 1


async def test_a_foreign_message_is_dead_lettered_at_its_first_delivery_with_its_own_bytes() -> (
    None
):
    async with on_stage(review) as stage:
        await stage.put(b"\xffhello", "quality")
        (dead,) = await stage.dead_letters("quality")
        assert dead.body == b"\xffhello"
        assert header(dead, "aa-fault-code") == "INVALID_PAYLOAD"
        assert header(dead, "aa-attempt") == 1


@pytest.mark.parametrize("told", [False, True])
async def test_the_stack_is_told_only_where_it_is_configured(*, told: bool) -> None:
    async with on_stage(fail, stack_traces=told) as stage:
        answer = await within(
            stage.client.exchange(
                AgentMessage(sender="x", recipient="failing", message_type=MessageType.REQUEST)
            )
        )
        assert (answer.payload["stack_trace"] is not None) is told
        (dead,) = await stage.dead_letters("failing")
        assert (header(dead, "aa-fault-stack") is not None) is told


async def test_an_error_says_what_failed_and_whether_to_ask_again() -> None:
    async with on_stage(fail) as stage:
        with pytest.raises(AgentCommunicationError) as raised:
            await stage.ask(fail, Draft(text="magic"))
        assert raised.value.retryable
        assert raised.value.failed_agent == "failing"
        assert raised.value.details == {"error": "ValueError"}


async def test_an_error_that_cannot_be_told_is_counted() -> None:
    async with on_stage(fail) as stage:
        request = AgentMessage(
            sender="x",
            recipient="failing",
            message_type="request",
            task_id="t" * 40_000,
            reply_to="agent.reply.x",
        )
        body = request.sealed().json().replace("t" * 40_000, "t" * 90_000).encode()
        await stage.put(body, "failing")
        assert stage.counted("undelivered_replies", "failing") == 1
        assert len(await stage.dead_letters("failing")) == 1
