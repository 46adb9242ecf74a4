"""How much is let in: carefully at first, then as much as the agent and its gate allow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from amqp_agents.agent import agent
from amqp_agents.context import Outgoing
from amqp_agents.intake import Slots
from amqp_agents.pipeline import Gate
from tests.unit.stage import DEFAULTS, Draft, Stage, on_stage


class Room:
    """Handlings that take a slot and leave it when told."""

    def __init__(self, most: int) -> None:
        self.gate = Gate()
        self.slots = Slots(most, self.gate)
        self.running: list[str] = []
        self.refused: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.ends: dict[str, asyncio.Event] = {}

    async def come(self, *names: str) -> None:
        """Let them ask for a slot."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._handle(name))
        await self.turn()

    async def go(self, *names: str) -> None:
        """Let them end."""
        for name in names:
            self.ends[name].set()
        await self.turn()

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _handle(self, name: str) -> None:
        async with self.slots.slot() as admitted:
            if not admitted:
                self.refused.append(name)
                return
            self.running.append(name)
            await self.ends[name].wait()
            self.running.remove(name)


@asynccontextmanager
async def room(most: int) -> AsyncIterator[Room]:
    room = Room(most)
    yield room
    for task in room.tasks.values():
        task.cancel()
    await asyncio.gather(*room.tasks.values(), return_exceptions=True)


async def test_slots_are_given_in_order_of_arrival() -> None:
    async with room(2) as one:
        await one.come(*"abcde")
        assert one.running == ["a", "b"]
        await one.go("b")
        assert one.running == ["a", "c"]
        await one.go("a", "c")
        assert one.running == ["d", "e"]


async def test_a_limit_of_the_gate_counts_until_it_is_lifted() -> None:
    async with room(4) as one:
        one.gate.set(1)
        await one.come(*"abcde")
        assert one.running == ["a"]
        one.gate.set(2)
        await one.turn()
        assert one.running == ["a", "b"]
        one.gate.set(None)
        await one.turn()
        assert one.running == ["a", "b", "c", "d"]


async def test_a_probe_need_not_wait_for_what_began_before_the_gate_closed() -> None:
    async with room(3) as one:
        await one.come("old", "older")
        one.gate.set(0)
        await one.come("probe", "next")
        assert one.running == ["old", "older"]
        one.gate.set(1)
        await one.turn()
        assert one.running == ["old", "older", "probe"]
        await one.go("old")
        assert one.running == ["older", "probe"]
        await one.go("probe")
        assert one.running == ["older", "next"]


async def test_room_for_all_is_never_exceeded() -> None:
    async with room(2) as one:
        await one.come("old", "older")
        one.gate.set(0)
        one.gate.set(1)
        await one.come("probe")
        assert one.running == ["old", "older"]
        await one.go("older")
        assert one.running == ["old", "probe"]


async def test_who_waits_is_sent_away_once_it_cannot_come_straight_back() -> None:
    async with room(1) as one:
        await one.come("a", "b")
        one.gate.set(0)
        await one.come("c")
        assert one.refused == []
        one.slots.refuse()
        await one.come("d")
        assert sorted(one.refused) == ["b", "c", "d"]
        assert one.running == ["a"]


@pytest.mark.parametrize("at_the_same_time", [False, True])
async def test_who_is_cut_off_while_waiting_takes_no_room(at_the_same_time: bool) -> None:
    async with room(1) as one:
        await one.come("a", "b", "c")
        if at_the_same_time:
            one.ends["a"].set()
            await asyncio.sleep(0)  # the slot is given to b, which has not noticed yet
        one.tasks["b"].cancel()
        await one.turn()
        await one.go("a")
        assert one.running == ["c"]


class Ward:
    """An agent with five slots whose handlings end when told."""

    def __init__(self) -> None:
        self.running = 0
        self.go = asyncio.Event()

        @agent("ward", concurrency=5, breaker=None)
        async def ward(draft: Draft) -> None:
            self.running += 1
            try:
                await self.go.wait()
            finally:
                self.running -= 1

        self.target = ward


async def send(stage: Stage, count: int) -> None:
    for _ in range(count):
        await stage.client.publish(Outgoing(Draft(), to="ward"))
    await stage.advance(0)


async def test_a_new_worker_takes_one_message_and_all_it_may_once_that_is_settled() -> None:
    ward = Ward()
    async with on_stage(ward.target, warm=False) as stage:
        await send(stage, 8)
        assert ward.running == 1
        assert await stage.broker.depth("agent.ward") == 7
        ward.go.set()
        ward.go = asyncio.Event()
        await stage.advance(0)
        assert ward.running == 5
        ward.go.set()


async def test_a_first_handling_that_takes_long_is_not_alone_until_its_end() -> None:
    ward = Ward()
    async with on_stage(ward.target, warm=False) as stage:
        await send(stage, 8)
        await stage.advance(0.9)
        assert ward.running == 1
        await stage.advance(0.2)
        assert ward.running == 5
        ward.go.set()


async def test_what_was_delivered_before_is_handled_alone_until_a_new_message_was_settled() -> None:
    ward = Ward()
    async with on_stage(ward.target) as stage:
        await send(stage, 5)
        await stage.serving.drain(0.0)  # all five go back, redelivered
        again = stage.app.serving(stage.broker, DEFAULTS)
        await again.start()
        await stage.advance(5)
        assert ward.running == 1
        ward.go.set()
        await stage.advance(0)
        assert await stage.broker.depth("agent.ward") == 0
        ward.go = asyncio.Event()
        await send(stage, 2)
        assert ward.running == 1
        await stage.advance(1.1)
        assert ward.running == 2
        ward.go.set()
        await again.drain(1.0)


async def test_subscriptions_are_closed_once_their_handlings_are_settled() -> None:
    ward = Ward()
    async with on_stage(ward.target) as stage:
        intake = stage.serving.consumers[0].intake
        await send(stage, 5)
        old = intake.subscriptions
        intake._gate.set(0)
        await stage.advance(0)
        assert intake.subscriptions == []
        assert len(intake._retiring) == len(old) == 2
        assert {each.state for each in old} == {"cancelled"}
        ward.go.set()
        await stage.advance(0)
        assert intake._retiring == {}
        intake._gate.set(None)
        await send(stage, 1)
        assert stage.counted("deliveries", "ward", "handled") == 6


async def test_a_gate_that_closes_for_a_moment_only_is_obeyed_all_the_same() -> None:
    ward = Ward()
    async with on_stage(ward.target) as stage:
        intake = stage.serving.consumers[0].intake
        before = intake.subscriptions
        intake._gate.set(0)
        intake._gate.set(2)
        await stage.advance(0)
        assert {each.state for each in before} == {"cancelled"}
        await send(stage, 5)
        assert ward.running == 2
        assert await stage.broker.depth("agent.ward") == 3
        intake._gate.set(4)
        await stage.advance(0)
        assert ward.running == 4
        assert await stage.broker.depth("agent.ward") == 1
        ward.go.set()
