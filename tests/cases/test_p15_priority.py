"""1 is most urgent, on every queue that can tell; where it cannot, order is by arrival."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from amqp_agents import AgentMessage, Outgoing, RetryPolicy, agent
from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol import encode
from tests.cases.checks import canary
from tests.cases.command import command
from tests.cases.stage import Place, Stage, Work, message, on_stage, until

pytestmark = pytest.mark.rabbitmq

SENT = [10, 5, 1, 2]


@asynccontextmanager
async def stopped(place: Place, order: list[int]) -> AsyncIterator[Stage]:
    @agent("work", concurrency=1)
    async def work(given: Work) -> None:
        order.append(given.n)

    async with on_stage(place, work, start=False) as stage:
        yield stage


def allowed(version: tuple[int, int], order: list[int]) -> bool:
    """What each RabbitMQ can do: one queue by arrival, two classes, or every level."""
    if version < (4, 0):
        return order == SENT
    if version < (4, 3):  # 1 and 2 are of the urgent class; two of it go before one other
        return order.index(1) < order.index(2) and order[0] in (1, 2) and order != SENT
    return order == [1, 2, 5, 10]


async def test_the_most_urgent_comes_first_as_far_as_the_queue_can_tell(place: Place) -> None:
    order: list[int] = []
    async with stopped(place, order) as stage:
        for priority in SENT:
            await stage.caller.publish(message("work", priority, priority=priority))
        waiting = await stage.waiting("agent.work")
        sent = {d.properties.priority for d in waiting}
        assert sent == {0, 4, 8, 7}
        await stage.start()
        await until(lambda: len(order) == len(SENT), "all handled")
        assert allowed(await place.version(), order), order
        await canary(stage, "work")


async def test_urgent_ones_pass_a_backlog_of_normal_ones(place: Place) -> None:
    order: list[int] = []
    async with stopped(place, order) as stage:
        await asyncio.gather(*(stage.caller.publish(message("work", 5)) for _ in range(30)))
        await asyncio.gather(
            *(stage.caller.publish(message("work", 1, priority=1)) for _ in range(5))
        )
        await stage.start()
        await until(lambda: len(order) == 35, "all handled")
        last = max(at for at, n in enumerate(order) if n == 1)
        if await place.version() < (4, 0):
            assert last == 34
        else:
            assert last < 12, order
        await canary(stage, "work")


async def test_a_default_is_neither_urgent_nor_late(place: Place) -> None:
    """The default reaches the broker as 4, which every version takes for normal."""
    order: list[int] = []
    async with stopped(place, order) as stage:
        await stage.caller.publish(message("work"))
        (waiting,) = await stage.waiting("agent.work")
        assert waiting.properties.priority == 4


@pytest.mark.parametrize("priority", [0, 11, -1, 300, 2**31, 1.5, "high", None, True, float("nan")])
async def test_a_priority_outside_of_1_to_10_is_refused_by_name(
    place: Place, priority: Any
) -> None:
    with pytest.raises(ValidationError, match="priority"):
        message("work", priority=priority if priority is not None else 0)
    async with stopped(place, []) as stage:
        if priority is not None:
            with pytest.raises(InvalidPayloadError, match="priority"):
                await stage.caller.publish(Outgoing(Work(), to="work", priority=priority))
            assert await stage.depth("agent.work") == 0


@pytest.mark.parametrize("priority", range(1, 11))
def test_every_priority_has_a_level_of_its_own_but_the_last_two(priority: int) -> None:
    sent = AgentMessage(sender="a", recipient="b", message_type="direct", priority=priority)
    _, properties = encode(sent, now=sent.timestamp.timestamp())
    assert properties.priority == max(0, 9 - priority)


async def test_a_retry_is_not_held_behind_more_urgent_ones(place: Place) -> None:
    """A delayed copy has no priority: 4.0 would let it expire only behind the urgent class."""
    runs: list[int] = []

    @agent("work", retry=RetryPolicy(max_attempts=3, base_seconds=1))
    async def work(given: Work) -> None:
        runs.append(given.n)
        if runs.count(given.n) == 1:
            raise ValueError("again")

    async with on_stage(place, work) as stage:
        for priority in (1, 10, 5):
            await stage.caller.publish(message("work", priority, priority=priority))
        await until(lambda: len(runs) == 6, "each twice", 6)
        assert sorted(runs) == [1, 1, 5, 5, 10, 10]


async def test_declaring_says_what_the_broker_can_order(place: Place) -> None:
    code, printed = await command(place, "topology", "apply", "tests.cases.workers:app")
    assert code == 0, printed
    version = await place.version()
    words = "by arrival" if version < (4, 0) else "two classes" if version < (4, 3) else "each of"
    assert "priorit" in printed, printed
    assert words in printed, printed
    code, printed = await command(place, "topology", "check", "tests.cases.workers:app")
    assert code == 0, printed
