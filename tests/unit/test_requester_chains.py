"""Questions that follow from others: what they inherit, and where a chain of them ends."""

from datetime import UTC, datetime

import pytest

from amqp_agents.agent import agent
from amqp_agents.context import Context
from amqp_agents.errors import ErrorCode, ExpiredMessageError, NonRetryableError
from amqp_agents.protocol import AgentMessage, AgentRef, Policy
from tests.unit.stage import Draft, Review, on_stage, within


@agent("quality")
async def review(draft: Draft) -> Review:
    return Review()


async def test_a_question_carries_its_limit_and_no_more() -> None:
    seen: list[AgentMessage] = []

    @agent("curious")
    async def curious(draft: Draft, context: Context) -> None:
        seen.append(context.message)

    async with on_stage(curious) as stage:
        await stage.ask(curious, Draft(), timeout_seconds=2.5)
        assert (seen[0].deadline_ms, seen[0].ttl, seen[0].requires_response) == (2500, 3, True)


async def test_a_question_follows_its_cause() -> None:
    asked: list[AgentMessage] = []

    @agent("inner")
    async def inner(draft: Draft, context: Context) -> None:
        asked.append(context.message)

    @agent("outer")
    async def outer(draft: Draft, context: Context) -> None:
        asked.append(context.message)
        await context.request(inner, Draft(), timeout_seconds=60)

    async with on_stage(inner, outer) as stage:
        question = AgentMessage(
            sender="x",
            recipient="outer",
            message_type="request",
            task_id="task",
            trace_id="trace",
            deadline_ms=20_000,
            policy=Policy(sensitivity="high"),
            timestamp=datetime.fromtimestamp(stage.clock.time(), UTC),
        )
        await within(stage.client.exchange(question))
        cause, follower = asked
        assert (follower.trace_id, follower.task_id) == ("trace", "task")
        assert follower.causality.parent_message_id == cause.message_id
        assert follower.policy.sensitivity == "high"
        assert follower.deadline_ms is not None
        assert follower.deadline_ms <= 20_000
        assert follower.sender == "outer"


async def test_two_agents_that_ask_each_other_end_with_a_clear_error() -> None:
    runs = []

    @agent("ping", concurrency=20)
    async def ping(draft: Draft, context: Context) -> Review:
        runs.append(context.depth)
        return await context.request("pong", draft, returns=Review)

    @agent("pong", concurrency=20)
    async def pong(draft: Draft, context: Context) -> Review:
        runs.append(context.depth)
        return await context.request(ping, draft)

    async with on_stage(ping, pong) as stage:
        with pytest.raises(
            NonRetryableError, match="do agents ask each other in a circle"
        ) as raised:
            await stage.ask(ping, Draft())
        assert raised.value.code is ErrorCode.INVALID_PAYLOAD
        assert runs == list(range(17))
        assert stage.client.requester.pending == {}


async def test_a_message_too_old_to_ask_with_is_not_sent() -> None:
    async with on_stage(review) as stage:
        old = AgentMessage(sender="x", recipient="quality", message_type="request", timestamp=10**9)
        with pytest.raises(ExpiredMessageError):
            await stage.client.exchange(old)
        assert stage.client.requester.pending == {}


async def test_a_role_is_told_with_the_sender() -> None:
    async with on_stage(review) as stage:
        answer = await within(
            stage.client.requester.ask(
                "quality", {}, timeout_seconds=5, sender=AgentRef("me", "boss"), returns=Review
            )
        )
        assert answer == Review()
        assert stage.journal.entries[0].message.sender_role == "boss"
