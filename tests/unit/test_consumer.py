"""From a queue through the pipeline to a settled delivery, and how that ends."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from amqp_agents.agent import Agent, agent
from amqp_agents.config import RetryPolicy
from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    CapacityExceededError,
    CircuitOpenError,
    DependencyFailedError,
    ErrorCode,
    ExpiredMessageError,
    InvalidPayloadError,
    NonRetryableError,
    PermissionDeniedError,
    RetryLater,
)
from amqp_agents.injection import RawMessage
from amqp_agents.protocol import AgentMessage
from tests.unit.stage import Draft, Review, Stage, header, on_stage, within

THRICE = RetryPolicy(max_attempts=3)


class UnspeakableError(Exception):
    """Fails to say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even that")


class UnspeakableExit(BaseException):
    """Passes every `except Exception`, and fails to say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even that")


class OddlyCodedError(AgentError):
    """A user's own, whose code is none."""

    code = "RATE_LIMITED"  # type: ignore[assignment]


def raising(error: BaseException, *, blocking: bool, name: str = "failing") -> Any:
    """An agent whose handler raises, on the loop or in a thread."""
    if blocking:

        @agent(name, retry=THRICE)
        def handle(draft: Draft) -> Review:
            raise error
    else:

        @agent(name, retry=THRICE)
        async def handle(draft: Draft) -> Review:
            raise error

    return handle


async def given_up(stage: Stage, target: Any, count: int = 1) -> None:
    """Let time pass until so many messages are in the agent's dead-letter queue."""
    name = target.agent_name
    async with asyncio.timeout(5):
        while len(await stage.dead_letters(name)) < count:
            before = len(stage.journal.what(name))
            await stage.advance(1)
            if len(stage.journal.what(name)) == before:
                await asyncio.to_thread(lambda: None)  # a thread may have to answer first


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize(
    "error",
    [
        InvalidPayloadError("bad"),
        PermissionDeniedError("no"),
        ExpiredMessageError("late"),
        NonRetryableError("never", failed_agent="b", code=ErrorCode.SCHEMA_MISMATCH),
        OddlyCodedError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_cannot_be_mended_is_dead_lettered_at_once_and_told(
    error: AgentError, blocking: bool
) -> None:
    target = raising(error, blocking=blocking)
    async with on_stage(target) as stage:
        with pytest.raises(NonRetryableError) as raised:
            await within(stage.client.request(target, Draft()))
        expected = error.code if isinstance(error.code, ErrorCode) else ErrorCode.UNKNOWN
        assert raised.value.code is expected
        (dead,) = await stage.dead_letters("failing")
        assert header(dead, "aa-attempt") == 1
        assert stage.counted("deliveries", "failing", "retried") == 0


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DependencyFailedError("model"), "DEPENDENCY_FAILED"),
        (CapacityExceededError("full"), "CAPACITY_EXCEEDED"),
        (CircuitOpenError("open"), "CAPACITY_EXCEEDED"),
        (ValueError("unknown to us"), "UNKNOWN"),
        (UnspeakableError(), "UNKNOWN"),
        (UnspeakableExit(), "DEPENDENCY_FAILED"),
        (SystemExit(3), "DEPENDENCY_FAILED"),
        (KeyboardInterrupt(), "DEPENDENCY_FAILED"),
        (asyncio.CancelledError(), "DEPENDENCY_FAILED"),
        (TimeoutError("of its own"), "UNKNOWN"),
        (ExceptionGroup("several", [ValueError("a")]), "UNKNOWN"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
async def test_what_may_be_mended_is_tried_as_often_as_the_policy_says(
    error: BaseException, code: str, blocking: bool
) -> None:
    target = raising(error, blocking=blocking)
    async with on_stage(target) as stage:
        call = asyncio.create_task(stage.client.request(target, Draft(), timeout_seconds=90))
        await given_up(stage, target)
        with pytest.raises(AgentCommunicationError) as raised:
            await within(call)
        assert (raised.value.code.value, raised.value.retryable) == (code, True)
        (dead,) = await stage.dead_letters("failing")
        assert header(dead, "aa-attempt") == 3
        assert stage.counted("deliveries", "failing", "retried") == 2


async def test_the_waits_double_from_attempt_to_attempt() -> None:
    at: list[float] = []

    @agent("slow_to_succeed")
    async def handle(draft: Draft, context: Context) -> dict[str, int]:
        at.append(stage.clock.time())
        if context.attempt < 4:
            raise ValueError("not yet")
        return {"attempt": context.attempt}

    async with on_stage(handle) as stage:
        assert await stage.ask(handle, Draft(), during=10) == {"attempt": 4}
        waits = [later - sooner for sooner, later in pairwise(at)]
        assert waits == pytest.approx([1, 2, 4], abs=0.01)


async def test_a_suggested_wait_is_kept() -> None:
    at: list[float] = []

    @agent("busy")
    async def handle(draft: Draft) -> None:
        at.append(stage.clock.time())
        if len(at) == 1:
            raise CapacityExceededError("full", suggested_retry_after=7)

    async with on_stage(handle) as stage:
        assert await stage.ask(handle, Draft(), during=8) is None
        assert at[1] - at[0] == pytest.approx(7, abs=0.01)


async def test_not_now_spends_no_attempt() -> None:
    attempts: list[int] = []

    @agent("patient", retry=RetryPolicy(max_attempts=2))
    async def handle(draft: Draft, context: Context) -> dict[str, int]:
        attempts.append(context.attempt)
        if len(attempts) < 6:
            raise RetryLater(2, "rate limit")
        return {"runs": len(attempts)}

    async with on_stage(handle) as stage:
        assert await stage.ask(handle, Draft(), during=11) == {"runs": 6}
        assert attempts == [1] * 6


async def test_not_now_is_bounded_by_the_deadline() -> None:
    target = raising(RetryLater(20, "approval pending"), blocking=False)
    async with on_stage(target) as stage:
        with pytest.raises(NonRetryableError, match="approval pending") as raised:
            await stage.ask(target, Draft(), timeout_seconds=10)
        assert raised.value.code is ErrorCode.TIMEOUT


async def test_nobody_waits_for_a_retry_that_would_come_too_late() -> None:
    target = raising(ValueError("x"), blocking=False)
    async with on_stage(target) as stage:
        with pytest.raises(NonRetryableError, match=r"next attempt is due in 2 s, but the message"):
            await stage.ask(target, Draft(), during=1.5, timeout_seconds=2.5)
        assert len(await stage.dead_letters("failing")) == 1


async def test_an_expired_message_is_dead_lettered_and_never_handled() -> None:
    runs: list[Draft] = []

    @agent("late")
    async def handle(draft: Draft) -> None:
        runs.append(draft)

    async with on_stage(handle) as stage:
        old = AgentMessage(sender="x", recipient="late", type="message", timestamp=10**9)
        await stage.put(old.sealed().json().encode(), "late")
        assert runs == []
        (dead,) = await stage.dead_letters("late")
        assert header(dead, "aa-fault-code") == "AGENT_TIMEOUT"


async def test_a_payload_that_is_not_the_model_is_dead_lettered_and_told_by_field() -> None:
    @agent("strict")
    async def handle(draft: Draft) -> None: ...

    async with on_stage(handle) as stage:
        with pytest.raises(NonRetryableError, match="payload is not a Draft: text") as raised:
            await stage.ask("strict", {"text": [1]})
        assert raised.value.code is ErrorCode.INVALID_PAYLOAD


async def test_a_message_changed_on_its_way_is_dead_lettered() -> None:
    @agent("strict")
    async def handle(draft: Draft) -> None: ...

    async with on_stage(handle) as stage:
        message = AgentMessage(
            sender="x", recipient="strict", type="message", payload={"text": "pay 20"}
        )
        await stage.put(message.sealed().json().replace("pay 20", "pay 99").encode(), "strict")
        (dead,) = await stage.dead_letters("strict")
        assert "payload_digest" in header(dead, "aa-fault-message")


async def test_an_addressed_message_without_a_handler_is_a_dead_letter() -> None:
    only = Agent("only")

    @only.on("look")
    async def handle(draft: Draft) -> None: ...

    async with on_stage(only) as stage:
        with pytest.raises(NonRetryableError, match="has no handler for request with intent 'buy'"):
            await stage.ask("only", {}, intent="buy")


def listener(*, where: dict[str, Any] | None = None) -> tuple[Agent, list[str]]:
    heard: list[str] = []
    declared = Agent("listener")

    @declared.on_event("x.#", where=where)
    async def hear(draft: Draft, context: Context) -> None:
        heard.append(draft.text)
        if draft.text == "echo":
            await context.publish(Outgoing(Draft(text="own"), event="x.again"))

    return declared, heard


async def test_an_event_is_heard_and_acknowledged() -> None:
    declared, heard = listener()
    async with on_stage(declared) as stage:
        await stage.client.publish(Outgoing(Draft(text="a"), event="x.y"))
        await stage.client.publish(Outgoing(Draft(text="b"), broadcast="x"))
        await stage.client.publish(Outgoing(Draft(text="c"), event="y"))
        await stage.advance(0)
        assert heard == ["a", "b"]
        assert stage.counted("deliveries", "listener", "handled") == 2


async def test_an_agent_does_not_hear_itself() -> None:
    declared, heard = listener()
    async with on_stage(declared) as stage:
        await stage.client.publish(Outgoing(Draft(text="echo"), event="x.y"))
        await stage.advance(0)
        assert heard == ["echo"]
        assert stage.counted("deliveries", "listener", "ignored") == 1
        assert stage.journal.what("listener") == ["sent", "handled", "ignored"]


async def test_an_event_that_is_filtered_out_is_counted_once_and_acknowledged() -> None:
    declared, heard = listener(where={"text": "yes"})
    async with on_stage(declared) as stage:
        await stage.client.publish(Outgoing(Draft(text="no"), event="x.y"))
        await stage.client.publish(Outgoing(Draft(text="yes"), event="x.y"))
        await stage.advance(0)
        assert heard == ["yes"]
        assert stage.counted("deliveries", "listener", "ignored") == 1
        assert stage.counted("deliveries", "listener", "handled") == 1
        assert await stage.dead_letters("listener") == []


async def test_an_event_without_a_handler_here_is_never_a_dead_letter() -> None:
    declared, _ = listener()
    async with on_stage(declared) as stage:
        event = AgentMessage(sender="x", message_type="event", intent="stock.empty")
        await stage.put(event, "listener")
        assert stage.counted("deliveries", "listener", "ignored") == 1
        assert await stage.dead_letters("listener") == []
        assert await stage.broker.depth("agent.listener") == 0


@pytest.mark.parametrize("attempt", ["3", -5, 10**9, True])
async def test_an_attempt_nobody_of_ours_wrote_gives_no_more_and_no_fewer_tries(
    attempt: Any,
) -> None:
    target = raising(ValueError("x"), blocking=False)
    async with on_stage(target) as stage:
        message = AgentMessage(sender="x", recipient="failing", type="message")
        await stage.put(message, "failing", aa_attempt=attempt)
        await given_up(stage, target)
        (dead,) = await stage.dead_letters("failing")
        assert header(dead, "aa-attempt") == 3


async def test_foreign_bytes_reach_who_accepts_them() -> None:
    seen: list[RawMessage] = []

    @agent("bridge")
    async def bridge(raw: RawMessage) -> None:
        seen.append(raw)

    async with on_stage(bridge) as stage:
        await stage.put(b"<xml/>", "bridge", weight=2)
        (raw,) = seen
        assert (raw.body, raw.content_type, raw.headers["weight"]) == (
            b"<xml/>",
            "application/json",
            2,
        )
        assert stage.counted("deliveries", "bridge", "handled") == 1


async def test_what_a_handler_of_foreign_bytes_raises_is_judged_as_any_other() -> None:
    @agent("bridge", retry=THRICE)
    async def bridge(raw: RawMessage) -> None:
        raise ValueError("x")

    async with on_stage(bridge) as stage:
        await stage.put(b"<xml/>", "bridge")
        await given_up(stage, bridge)
        (dead,) = await stage.dead_letters("bridge")
        assert (dead.body, header(dead, "aa-attempt")) == (b"<xml/>", 3)
