"""Running agents: what must be there first, and how serving ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from traceback import format_exception

import pytest

from amqp_agents.agent import agent
from amqp_agents.app import AgentApp
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.client import Client
from amqp_agents.clock import ManualClock
from amqp_agents.config import Settings
from amqp_agents.context import Outgoing
from amqp_agents.errors import BrokerError, TopologyConflictError, TopologyMissingError
from amqp_agents.lifecycle import Serving, ensure_topology, serve, shortened
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import AgentSpec, Queue, QueueKind, Topology
from tests.unit.stage import Draft, Review, on_stage, within

ALL = standard_topology([AgentSpec("a"), AgentSpec("b")])


@agent("quick")
async def quick(draft: Draft) -> Review:
    return Review()


@agent("stuck")
async def stuck(draft: Draft) -> None:
    await asyncio.Event().wait()


def broker() -> MemoryBroker:
    return MemoryBroker(clock=ManualClock(frozen=True))


async def test_what_is_there_already_is_enough() -> None:
    one = broker()
    await one.apply(ALL)
    await ensure_topology(one, ALL, declare=False)


async def test_what_is_missing_is_named_with_the_mend_and_not_made() -> None:
    one = broker()
    with pytest.raises(TopologyMissingError) as raised:
        await ensure_topology(one, ALL, declare=False)
    sentence = str(raised.value)
    assert sentence.startswith("missing on the broker: ")
    assert "more; create it with 'amqp-agents topology apply' or start with 'run --declare'" in (
        sentence
    )
    assert len(sentence) < 400
    assert await one.depth("agent.a") is None


async def test_a_missing_policy_is_no_reason_not_to_run() -> None:
    one = broker()
    await one.apply(replace(ALL, policies=()))
    await ensure_topology(one, ALL, declare=False)


async def test_what_is_missing_is_made_where_that_is_asked_for() -> None:
    one = broker()
    await ensure_topology(one, ALL, declare=True)
    assert await one.depth("agent.a") == 0


@pytest.mark.parametrize("declare", [False, True])
async def test_what_is_there_in_another_shape_is_named_and_left_alone(*, declare: bool) -> None:
    one = broker()
    await one.apply(Topology(queues=(Queue("agent.a", QueueKind.CLASSIC),)))
    with pytest.raises(TopologyConflictError, match=r"agent\.a"):
        await ensure_topology(one, ALL, declare=declare)
    assert await one.depth("agent.b") is None


def test_few_names_are_all_told() -> None:
    assert shortened(["a", "b"]) == ["a", "b"]


def serving_on(one: MemoryBroker, *agents: object) -> tuple[AgentApp, Serving]:
    app = AgentApp([*agents])  # type: ignore[list-item]
    return app, app.serving(one, Settings())


async def test_serving_without_a_queue_ends_with_the_reason_instead_of_waiting() -> None:
    one = broker()
    await one.apply(standard_topology([AgentSpec("other")]))
    _, serving = serving_on(one, quick)
    starting = asyncio.create_task(serving.start())
    await one.clock.advance(11)
    (error,) = await within(asyncio.gather(starting, return_exceptions=True))
    assert isinstance(error, Exception)
    assert "queue not found: agent.quick" in "".join(format_exception(error))


async def test_a_drain_tells_how_many_were_cut_off() -> None:
    async with on_stage(quick, stuck) as stage:
        for _ in range(3):
            await stage.client.publish(Outgoing(Draft(), to="stuck"))
        await stage.advance(0)
        assert await within(stage.serving.drain(0.0)) == 3


class Opened:
    """A lifespan that notes when it was open."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        self.seen.append("opened")
        yield
        self.seen.append("closed")


async def served(
    one: MemoryBroker, serving: Serving, opened: Opened | None = None, grace: float = 30.0
) -> tuple["asyncio.Task[None]", asyncio.Event, asyncio.Event]:
    until, at_once = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        serve(serving, lifespan=opened, until=until, at_once=at_once, grace_seconds=grace)
    )
    await one.clock.advance(0)
    return running, until, at_once


async def test_serving_opens_what_handlers_need_first_and_closes_it_last() -> None:
    one, opened = broker(), Opened()
    await one.apply(standard_topology([AgentSpec("quick")]))
    _, serving = serving_on(one, quick)
    running, until, _ = await served(one, serving, opened)
    client = await Client(one).open()
    assert await within(client.request(quick, Draft())) == Review()
    assert opened.seen == ["opened"]
    until.set()
    await within(running)
    assert opened.seen == ["opened", "closed"]


async def test_a_second_signal_ends_the_drain_at_once() -> None:
    one, opened = broker(), Opened()
    await one.apply(standard_topology([AgentSpec("stuck")]))
    _, serving = serving_on(one, stuck)
    running, until, at_once = await served(one, serving, opened, grace=1000)
    client = await Client(one).open()
    await client.publish(Outgoing(Draft(), to="stuck"))
    await one.clock.advance(0)
    until.set()
    await one.clock.advance(0)
    assert not running.done()
    at_once.set()
    await within(running)
    assert await one.depth("agent.stuck") == 1
    assert opened.seen == ["opened", "closed"]


async def test_a_lifespan_that_fails_to_open_ends_serving_before_a_message_moves() -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        raise ConnectionError("the model is away")
        yield

    one = broker()
    await one.apply(standard_topology([AgentSpec("quick")]))
    _, serving = serving_on(one, quick)
    with pytest.raises(ConnectionError):
        await within(
            serve(
                serving,
                lifespan=failing,
                until=asyncio.Event(),
                at_once=asyncio.Event(),
                grace_seconds=1,
            )
        )


async def test_an_agent_that_cannot_be_served_is_told_as_one_broker_error() -> None:
    one = broker()
    await ensure_topology(one, standard_topology([AgentSpec("other")]), declare=True)
    settings = Settings(connect_timeout_seconds=0.05)
    serving = AgentApp([quick]).serving(one, settings)
    starting = asyncio.create_task(serving.start())
    while not starting.done():
        await one.clock.advance(1)
    with pytest.raises(BrokerError, match=r"agent\.quick"):
        await starting
    await serving.drain(0.0)


async def test_serving_that_is_cancelled_hands_back_what_it_took() -> None:
    one = broker()
    app = AgentApp([stuck])
    await ensure_topology(one, app.topology(), declare=True)
    ready = asyncio.Event()
    serving = app.serving(one, Settings())
    running = asyncio.create_task(
        serve(
            serving,
            lifespan=None,
            until=asyncio.Event(),
            at_once=asyncio.Event(),
            grace_seconds=10,
            on_ready=ready.set,
        )
    )
    await within(ready.wait())
    client = await Client(one).open()
    await client.publish(Outgoing(Draft(), to="stuck"))
    await one.clock.advance(0.1)
    assert await one.depth("agent.stuck") == 0

    running.cancel()
    await asyncio.wait({running}, timeout=5)

    assert running.cancelled()
    assert await one.depth("agent.stuck") == 1
    await one.close()
