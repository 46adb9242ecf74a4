"""Middleware that decides or forgets to, and what becomes of a message if we fail ourselves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amqp_agents.agent import agent
from amqp_agents.context import Outgoing
from amqp_agents.outcome import Outcome, Release
from amqp_agents.pipeline import Delivery, Handler
from tests.unit.stage import Draft, header, on_stage, within

Middle = Callable[[Handler, Delivery], Awaitable[Any]]


async def through(stage_middleware: Middle) -> tuple[list[str], list[Delivery]]:
    """What an agent behind a middleware does with one message."""

    def wrap(handler: Handler) -> Handler:
        async def middle(delivery: Delivery) -> Outcome:
            outcome: Outcome = await stage_middleware(handler, delivery)
            return outcome

        return middle

    @agent("behind")
    async def behind(draft: Draft) -> None: ...

    async with on_stage(behind, middleware=[wrap]) as stage:
        await stage.client.publish(Outgoing(Draft(), to="behind"))
        await stage.advance(1)
        return stage.journal.what("behind"), await stage.dead_letters("behind")


async def test_a_middleware_that_forgets_its_outcome_is_told_so() -> None:
    async def forgetful(handler: Handler, delivery: Delivery) -> None:
        await handler(delivery)

    did, (dead,) = await through(forgetful)
    assert did == ["dead-lettered"]
    assert "end it with 'return await handler(delivery)'" in header(dead, "aa-fault-message")


async def test_a_middleware_may_decide_by_itself() -> None:
    async def closed(handler: Handler, delivery: Delivery) -> Outcome:
        if delivery.redelivered:
            return await handler(delivery)
        return Release("not yet")

    did, dead = await through(closed)
    assert did == ["released", "handled"]
    assert dead == []


async def test_a_defect_of_our_own_leaves_the_message_to_the_brokers_dead_lettering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    @agent("unlucky")
    async def unlucky(draft: Draft) -> None: ...

    async with on_stage(unlucky) as stage:
        settling = stage.serving.consumers[0]._settling
        monkeypatch.setattr(settling, "settle", lambda *_: 1 / 0)
        await stage.client.publish(Outgoing(Draft(), to="unlucky"))
        await stage.advance(0)
        (dead,) = await stage.dead_letters("unlucky")
        assert header(dead, "x-first-death-reason") == "rejected"
        assert stage.serving.consumers[0]._handlings == set()
    assert isinstance(told[0]["exception"], ZeroDivisionError)


async def test_a_handler_that_cancels_itself_does_not_spin_and_loses_nothing() -> None:
    runs: list[Draft] = []

    @agent("selfish")
    async def selfish(draft: Draft) -> None:
        runs.append(draft)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with on_stage(selfish) as stage:
        await stage.client.publish(Outgoing(Draft(), to="selfish"))
        await stage.advance(10)
        assert len(runs) == 1
        await within(stage.serving.drain(0.0))
        assert len(await stage.waiting("agent.selfish")) == 1
