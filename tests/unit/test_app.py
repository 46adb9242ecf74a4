import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amqp_agents.agent import Agent, agent
from amqp_agents.app import AgentApp, unique_agents
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.client import Client
from amqp_agents.clock import ManualClock
from amqp_agents.config import Settings
from amqp_agents.context import Context
from amqp_agents.errors import (
    ConfigurationError,
    DuplicateAgentError,
    TopologyConflictError,
    TopologyMissingError,
)
from amqp_agents.observability import MemoryJournal, Metrics
from amqp_agents.outcome import Outcome
from amqp_agents.pipeline import Delivery, Handler
from tests.unit.stage import Draft, Review, on_stage, within


@agent("quality")
async def review(draft: Draft) -> Review:
    return Review(risk="high" if "refund" in draft.text else "low")


other = Agent("other")


@other.on("look")
async def look(draft: Draft) -> Review:
    return Review()


@other.on("ask")
async def ask(draft: Draft, context: Context) -> Review:
    return await context.request(review, draft)


async def test_a_test_of_an_app_reads_as_its_use() -> None:
    async with AgentApp([review, other]).test() as client:
        assert (await client.request(review, Draft(text="refund"))).risk == "high"
        assert await client.request(look, Draft()) == Review()
        assert (await client.request(ask, Draft(text="refund"))).risk == "high"


async def test_a_test_moves_the_clock_by_itself() -> None:
    @agent("flaky")
    async def flaky(draft: Draft, context: Context) -> dict[str, int]:
        if context.attempt < 3:
            raise ValueError("not yet")
        return {"attempt": context.attempt}

    async with AgentApp([flaky]).test() as client:
        call = asyncio.create_task(client.request(flaky, Draft()))
        await client.advance(5)
        assert await within(call) == {"attempt": 3}


async def test_a_test_opens_and_closes_the_lifespan() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        seen.append("opened")
        yield
        seen.append("closed")

    async with AgentApp([review], lifespan=lifespan).test() as client:
        await client.request(review, Draft())
        assert seen == ["opened"]
    assert seen == ["opened", "closed"]


async def test_an_apps_middleware_comes_behind_the_default_one_in_its_order() -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        def wrap(handler: Handler) -> Handler:
            async def note(delivery: Delivery) -> Outcome:
                seen.append(name)
                return await handler(delivery)

            return note

        return wrap

    async with on_stage(review, middleware=[noting("first"), noting("second")]) as stage:
        await stage.ask(review, Draft())
    assert seen == ["first", "second"]


async def test_metrics_and_journal_are_the_ones_that_are_given() -> None:
    metrics, journal = Metrics(), MemoryJournal()
    async with AgentApp([review], metrics=metrics, journal=journal).test() as client:
        await client.request(review, Draft())
    assert metrics.deliveries.labels("quality", "handled")._value.get() == 1
    (first,) = {entry.message.trace_id for entry in journal._entries}
    assert [entry.what for entry in journal.chain(first)] == ["sent", "sent", "handled"]


def test_two_apps_in_one_process_do_not_count_together() -> None:
    one, two = AgentApp([review]), AgentApp([review])
    assert one.telemetry.metrics.registry is not two.telemetry.metrics.registry


def test_a_handler_stands_for_its_agent_which_is_taken_once() -> None:
    assert unique_agents([review, look, ask, other, review.agent]) == [review.agent, other]


def bare(draft: Draft) -> None: ...


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], r"needs at least one agent: AgentApp\(\[my_agent\]\)"),
        ([bare], r"bare is no agent; decorate it with @agent\('name'\)"),
        ([None], "None is no agent"),
        (["quality"], "'quality' is no agent"),
        ([Agent("idle")], r"agent 'idle' has no handler; add one with @idle\.on"),
    ],
)
def test_what_cannot_run_is_told_before_a_message_moves(given: list[Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        AgentApp(given)


def test_two_agents_of_one_name_are_refused() -> None:
    twin = Agent("quality")
    twin.on("look")(review.function)
    with pytest.raises(DuplicateAgentError, match="agent 'quality' is declared twice"):
        AgentApp([review, twin])


def test_an_event_pattern_that_cannot_be_a_key_is_told_with_its_agent() -> None:
    wrong = Agent("wrong")
    wrong.on_event("ticket closed")(bare)
    with pytest.raises(ConfigurationError, match="agent 'wrong': intent 'ticket closed'"):
        AgentApp([wrong]).topology()


def test_agents_that_only_the_yaml_declares_are_part_of_the_topology(tmp_path: Path) -> None:
    declared = tmp_path / "agents.yaml"
    declared.write_text("agents:\n  - name: elsewhere\n")
    topology = AgentApp([review], topology=declared).topology()
    assert {spec.name for spec in topology.agents} == {"quality", "elsewhere"}


def test_where_code_and_yaml_differ_is_an_error(tmp_path: Path) -> None:
    declared = tmp_path / "agents.yaml"
    declared.write_text("agents:\n  - name: clerk\n    role: boss\n")
    clerk = Agent("clerk", role="clerk")
    clerk.on("look")(review.function)
    with pytest.raises(TopologyConflictError, match="clerk"):
        AgentApp([clerk], topology=declared).topology()


async def test_running_on_an_empty_vhost_says_what_is_missing() -> None:
    with pytest.raises(TopologyMissingError):
        await within(
            AgentApp([review]).run(MemoryBroker(), settings=Settings(), until=asyncio.Event())
        )


async def test_an_app_runs_until_it_is_told_to_stop() -> None:
    broker, until = MemoryBroker(clock=ManualClock(frozen=True)), asyncio.Event()
    running = asyncio.create_task(
        AgentApp([review]).run(broker, settings=Settings(), until=until, declare=True)
    )
    await broker.clock.advance(0)
    client = await Client(broker).open()
    assert await within(client.request(review, Draft())) == Review()
    until.set()
    await within(running)
    assert broker.vhost.queues["agent.quality"].depth == 0
