"""A retry reaches the agent that failed, and nobody else."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqp_agents import Agent, Context, Outgoing, RetryPolicy
from amqp_agents.outcome import Outcome
from amqp_agents.pipeline import Delivery
from tests.cases.command import command
from tests.cases.stage import Place, Stage, Work, message, on_stage, until

pytestmark = pytest.mark.rabbitmq


class Runs:
    """Which agent ran on which attempt of which event; who is to fail how often."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.seen: Counter[str] = Counter()
        self.origins: list[tuple[str, str]] = []

    def total(self) -> dict[str, int]:
        return dict(self.seen)

    def middleware(self) -> Any:
        def wrap(handler: Callable[[Delivery], Awaitable[Outcome]]) -> Any:
            async def look(delivery: Delivery) -> Outcome:
                if delivery.queue == "agent.x" and delivery.message is not None:
                    headers = delivery.properties.headers
                    exchange = headers.get("aa-orig-exchange", delivery.exchange)
                    key = headers.get("aa-orig-routing-key", delivery.routing_key)
                    self.origins.append((exchange, key))
                return await handler(delivery)

            return look

        return wrap


@asynccontextmanager
async def subscribers(place: Place, runs: Runs, pattern: str) -> AsyncIterator[Stage]:
    """x, bound by a pattern, fails; y and z are bound by the event's own name and by `#`."""
    x = Agent("x", retry=RetryPolicy(max_attempts=3, base_seconds=0))
    y, z = Agent("y"), Agent("z")

    @x.on_event(pattern)
    async def x_event(given: Work, context: Context) -> None:
        runs.seen["x"] += 1
        if runs.seen["x"] <= runs.failures:
            raise ValueError("x fails")

    @x.on("direct")
    async def x_direct(given: Work) -> None: ...

    @y.on_event("order.placed.eu")
    async def y_event(given: Work) -> None:
        runs.seen["y"] += 1

    @z.on_event("#")
    async def z_event(given: Work) -> None:
        runs.seen["z"] += 1

    async with on_stage(place, x, y, z, middleware=[runs.middleware()]) as stage:
        yield stage


async def x_is_well(stage: Stage) -> None:
    after = message("x", intent="direct")
    await stage.caller.publish(after)
    await until(lambda: stage.journal.count("handled", after.message_id) == 1, "x handles", 5)


@pytest.mark.parametrize("pattern", ["order.*.eu", "order.#", "#", "order.placed.eu"])
@pytest.mark.parametrize("kind", ["event", "broadcast"])
async def test_only_the_subscriber_that_failed_runs_again(
    place: Place, pattern: str, kind: str
) -> None:
    runs = Runs(failures=2)
    async with subscribers(place, runs, pattern) as stage:
        await stage.caller.publish(Outgoing(Work(), **{kind: "order.placed.eu"}))
        await until(lambda: runs.seen["x"] == 3, "x succeeds at the third attempt")
        await x_is_well(stage)
        assert runs.total() == {"x": 3, "y": 1, "z": 1}
        origin = ("agent.events", f"{kind}.order.placed.eu")
        assert [each for each in runs.origins if each[0] == "agent.events"] == [origin] * 3
        for name in ("x", "y", "z"):
            assert await stage.depth(f"agent.{name}") == 0
            assert await stage.dead_letters(name) == []


@pytest.mark.parametrize("by", ["all", "id"])
async def test_a_replay_runs_only_the_subscriber_that_gave_up(place: Place, by: str) -> None:
    runs = Runs(failures=3)
    async with subscribers(place, runs, "order.#") as stage:
        await stage.caller.publish(Outgoing(Work(), event="order.placed.eu"))
        await until(lambda: stage.counted("dead_letters_total", agent="x", code="UNKNOWN") == 1, "")
        (letter,) = await stage.dead_letters("x")
        assert letter.properties.headers["aa-orig-exchange"] == "agent.events"
        assert letter.properties.headers["aa-orig-routing-key"] == "event.order.placed.eu"
        message_id = str(letter.properties.headers["aa-message-id"])
        which = ["--all", "--yes"] if by == "all" else [message_id]
        code, printed = await command(place, "dlq", "replay", "x", *which)
        assert code == 0, printed
        await until(lambda: runs.seen["x"] == 4, "x runs once more, and succeeds")
        await x_is_well(stage)
        assert runs.total() == {"x": 4, "y": 1, "z": 1}
        assert runs.origins[-2] == ("agent.events", "event.order.placed.eu")
        assert await stage.dead_letters("x") == []
        assert stage.journal.count("handled", message_id) == 3  # x, y and z, once each


async def test_an_addressed_message_is_retried_at_its_own_agent(place: Place) -> None:
    runs = Runs(failures=0)
    async with subscribers(place, runs, "order.#") as stage:
        await canary_of_all(stage)
        assert runs.total() == {}


async def canary_of_all(stage: Stage) -> None:
    await x_is_well(stage)
