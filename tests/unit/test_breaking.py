"""An agent that keeps failing stops taking messages, loses none, and comes back by itself."""

import asyncio
from typing import Any

import pytest

from amqp_agents.agent import Agent, agent
from amqp_agents.config import RetryPolicy
from amqp_agents.context import Context, Outgoing
from amqp_agents.errors import (
    AgentCommunicationError,
    CapacityExceededError,
    CircuitOpenError,
    DependencyFailedError,
    InvalidPayloadError,
    NonRetryableError,
    PermissionDeniedError,
    RequestTimeoutError,
)
from amqp_agents.routing.breaker_state import BreakerPolicy
from tests.unit.stage import Draft, Stage, on_stage, within

LATER = RetryPolicy(max_attempts=20, base_seconds=200, cap_seconds=200)
THREE = BreakerPolicy(consecutive=3, first_open_seconds=1, shortest_open_seconds=1)


class Patient:
    """An agent that does what its text says, and what it has seen."""

    def __init__(
        self,
        name: str = "patient",
        *,
        concurrency: int = 8,
        breaker: BreakerPolicy | None = THREE,
        retry: RetryPolicy = LATER,
    ) -> None:
        self.ill = True
        self.seen: list[str] = []
        self.running = 0
        self.go = asyncio.Event()
        self.go.set()
        self.agent = Agent(name, concurrency=concurrency, breaker=breaker, retry=retry)
        self.agent.on("do")(self.handle)

    async def handle(self, draft: Draft) -> None:
        """Fail while ill."""
        self.seen.append(draft.text)
        self.running += 1
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        if draft.text == "forbidden":
            raise PermissionDeniedError("not for you")
        if self.ill and draft.text != "well":
            raise DependencyFailedError("the database is down")


async def send(stage: Stage, text: str, count: int = 1, to: str = "patient") -> None:
    for _ in range(count):
        await stage.client.publish(Outgoing(Draft(text=text), to=to, intent="do"))
    await stage.advance(0)


async def depth(stage: Stage, name: str = "patient") -> int | None:
    return await stage.broker.depth(f"agent.{name}")


def state(stage: Stage, name: str = "patient", dependency: str = "") -> float:
    return stage.counted("breaker_state", name, dependency)


CLOSED, HALF_OPEN, OPEN = 0, 1, 2


async def test_an_open_circuit_stops_consuming_and_loses_nothing() -> None:
    patient = Patient(concurrency=1)
    async with on_stage(patient.agent) as stage:
        await send(stage, "x", 10)
        assert patient.seen == ["x"] * 3
        assert state(stage) == OPEN
        assert await depth(stage) == 7
        assert await stage.dead_letters("patient") == []
        assert stage.counted("deliveries", "patient", "retried") == 3
        (waiting, *_) = await stage.waiting("agent.patient")
        assert waiting.delivery_count is None
        consumer = stage.serving.consumers[0]
        assert consumer.intake.subscriptions == []


async def test_what_runs_when_it_opens_is_finished() -> None:
    patient = Patient(concurrency=8)
    async with on_stage(patient.agent) as stage:
        slow = patient.go = asyncio.Event()
        await send(stage, "well", 2)
        patient.go = asyncio.Event()
        patient.go.set()
        await send(stage, "x", 3)
        assert (state(stage), patient.running) == (OPEN, 2)
        slow.set()
        await stage.advance(0)
        assert await depth(stage) == 0
        assert stage.counted("deliveries", "patient", "handled") == 2


async def test_a_half_open_circuit_lets_one_message_through_at_a_time() -> None:
    patient = Patient()
    async with on_stage(patient.agent) as stage:
        await send(stage, "x", 3)
        await send(stage, "x", 5)
        assert len(patient.seen) == 3
        patient.go.clear()
        await stage.advance(1.01)
        assert state(stage) == HALF_OPEN
        assert (len(patient.seen), patient.running) == (4, 1)
        assert await depth(stage) == 4
        patient.go.set()
        await stage.advance(0)
        assert state(stage) == OPEN  # the probe failed
        assert len(patient.seen) == 4
        assert await depth(stage) == 4


async def test_it_closes_after_two_probes_and_opens_up_step_by_step() -> None:
    patient = Patient(concurrency=8)
    async with on_stage(patient.agent) as stage:
        await send(stage, "x", 3)
        await send(stage, "x", 30)
        patient.ill, patient.go, at_once = False, asyncio.Event(), []
        await stage.advance(1.01)
        while patient.running:
            at_once.append(patient.running)
            patient.go, done = asyncio.Event(), patient.go
            done.set()
            await stage.advance(0)
        # Two probes, then one, two, four at a time, then as many as the agent may.
        assert at_once == [1, 1, 1, 2, 4, 8, 8, 5]
        assert (state(stage), len(patient.seen)) == (CLOSED, 33)
        assert stage.counted("deliveries", "patient", "released") == 0


async def test_what_came_during_the_outage_is_handled_once_it_is_over() -> None:
    patient = Patient(concurrency=4, retry=RetryPolicy(max_attempts=20))
    async with on_stage(patient.agent) as stage:
        await send(stage, "x", 20)
        await stage.advance(30)
        patient.ill = False
        await stage.advance(200)
        assert state(stage) == CLOSED
        assert stage.counted("deliveries", "patient", "handled") == 20
        assert await depth(stage) == 0
        assert await stage.dead_letters("patient") == []


async def test_callers_mistakes_open_nothing_and_reset_nothing() -> None:
    patient = Patient()
    async with on_stage(patient.agent) as stage:
        for _ in range(10):
            with pytest.raises(NonRetryableError):
                await stage.ask("patient", {"text": [1]}, intent="do")
        await send(stage, "well")
        assert state(stage) == CLOSED
        for text in ("x", "forbidden", "x", "forbidden"):
            await send(stage, text)
        assert state(stage) == CLOSED
        await send(stage, "x")
        assert state(stage) == OPEN


async def test_one_sick_agent_stops_no_other() -> None:
    sick, well = Patient("sick"), Patient("well")
    well.ill = False
    async with on_stage(sick.agent, well.agent) as stage:
        await send(stage, "x", 5, to="sick")
        await send(stage, "x", 5, to="well")
        assert (state(stage, "sick"), state(stage, "well")) == (OPEN, CLOSED)
        assert len(well.seen) == 5


async def test_without_a_breaker_every_message_is_tried() -> None:
    patient = Patient(breaker=None)
    async with on_stage(patient.agent) as stage:
        await send(stage, "x", 30)
        assert len(patient.seen) == 30


async def test_every_agent_has_a_breaker_unless_it_declares_otherwise() -> None:
    @agent("plain", retry=LATER)
    async def plain(draft: Draft) -> None:
        raise ValueError("x")

    async with on_stage(plain) as stage:
        for _ in range(7):
            await stage.client.publish(Outgoing(Draft(), to="plain"))
            await stage.advance(0)
        assert state(stage, "plain") == OPEN
        assert await depth(stage, "plain") == 2


async def test_a_retry_after_is_waited_for_before_the_first_probe() -> None:
    seen: list[float] = []

    @agent("limited", retry=LATER, breaker=THREE)
    async def limited(draft: Draft) -> None:
        seen.append(stage.clock.time())
        raise CapacityExceededError("full", suggested_retry_after=40)

    async with on_stage(limited) as stage:
        await send_to(stage, "limited", 5)
        await stage.advance(39)
        assert len(seen) == 3
        await stage.advance(2)
        assert len(seen) == 4


async def send_to(stage: Stage, name: str, count: int) -> None:
    for _ in range(count):
        await stage.client.publish(Outgoing(Draft(), to=name))
        await stage.advance(0)


async def test_a_handler_that_takes_too_long_counts_and_an_honest_slow_probe_does_not() -> None:
    probes = 0

    @agent("slow", time_limit_seconds=400, retry=LATER, breaker=THREE)
    async def slow(draft: Draft) -> None:
        nonlocal probes
        probes += 1
        await stage.clock.sleep(1000 if probes <= 3 else 390)

    async with on_stage(slow) as stage:
        await send_to(stage, "slow", 4)
        await stage.advance(400.5)
        assert state(stage, "slow") == OPEN
        await stage.advance(1)
        assert state(stage, "slow") == HALF_OPEN
        await stage.advance(389)
        assert state(stage, "slow") == HALF_OPEN
        await stage.advance(2)
        assert stage.counted("deliveries", "slow", "handled") == 1


async def test_a_drain_ends_while_the_circuit_is_open() -> None:
    patient = Patient()
    async with on_stage(patient.agent) as stage:
        await send(stage, "x", 6)
        assert await within(stage.serving.drain(5.0)) == 0
        await stage.advance(100)
        assert len(patient.seen) == 3
        assert await depth(stage) == 3


async def test_whoever_listens_hears_what_became_of_it() -> None:
    heard: list[Any] = []
    warden = Agent("warden")

    class Moved(Draft):
        agent: str
        to: str
        reason: str

    @warden.on_event("breaker.*")
    async def hear(moved: Moved, context: Context) -> None:
        heard.append((context.message.intent, moved.agent, moved.to, str(context.message.sender)))

    patient = Patient()
    async with on_stage(patient.agent, warden) as stage:
        await send(stage, "x", 4)
        patient.ill = False
        await stage.advance(1.01)
        await send(stage, "x")
        assert heard == [
            ("breaker.opened", "patient", "open", "patient"),
            ("breaker.half_open", "patient", "half_open", "patient"),
            ("breaker.closed", "patient", "closed", "patient"),
        ]


async def test_an_event_that_cannot_be_sent_changes_nothing_else() -> None:
    patient = Patient()
    async with on_stage(patient.agent) as stage:
        stage.faults.reject(times=10**6, exchange="agent.events")
        await send(stage, "x", 4)
        assert state(stage) == OPEN
        patient.ill = False
        await stage.advance(60)
        assert stage.counted("deliveries", "patient", "handled") == 1


async def test_an_agent_that_keeps_failing_is_not_asked_for_a_while() -> None:
    @agent("down", retry=RetryPolicy(max_attempts=1), breaker=None)
    async def down(draft: Draft) -> None:
        raise DependencyFailedError("the model is overloaded")

    @agent("up")
    async def up(draft: Draft) -> None: ...

    async with on_stage(down, up) as stage:
        for _ in range(5):
            with pytest.raises(AgentCommunicationError, match="overloaded"):
                await stage.ask(down, Draft())
        before = len(await stage.dead_letters("down"))
        with pytest.raises(CircuitOpenError, match="'down' failed too often") as refused:
            await stage.ask(down, Draft())
        assert refused.value.suggested_retry_after == 1
        assert len(await stage.dead_letters("down")) == before
        assert await stage.ask(up, Draft()) is None
        await stage.advance(1)
        with pytest.raises(AgentCommunicationError, match="overloaded"):
            await stage.ask(down, Draft())


async def test_mistakes_of_the_one_who_asks_do_not_keep_it_from_asking() -> None:
    @agent("strict")
    async def strict(draft: Draft) -> None: ...

    async with on_stage(strict) as stage:
        for _ in range(10):
            with pytest.raises(NonRetryableError):
                await stage.ask("strict", {"text": [1]})
            with pytest.raises(InvalidPayloadError):
                await stage.ask(strict, Stage)
            with pytest.raises(RequestTimeoutError):
                await stage.ask(strict, Draft(), timeout_seconds=0)
        assert await stage.ask(strict, Draft()) is None


async def test_a_message_waits_unspent_while_the_agent_it_needs_is_not_asked() -> None:
    attempts: list[int] = []
    ill = True

    @agent("model", retry=RetryPolicy(max_attempts=1), breaker=None)
    async def model(draft: Draft) -> None:
        if ill:
            raise DependencyFailedError("overloaded")

    @agent("asker", retry=RetryPolicy(max_attempts=7), breaker=None)
    async def asker(draft: Draft, context: Context) -> None:
        attempts.append(context.attempt)
        await context.request(model, draft)

    async with on_stage(model, asker) as stage:
        await send_to(stage, "asker", 1)
        await stage.advance(40)
        assert await stage.dead_letters("asker") == []
        assert attempts[:5] == [1, 2, 3, 4, 5]
        ill = False
        await stage.advance(120)
        assert stage.counted("deliveries", "asker", "handled") == 1
