import asyncio

import pytest

from amqp_agents.clock import ManualClock
from amqp_agents.errors import DependencyFailedError, InvalidPayloadError
from amqp_agents.middleware import circuit_breaker
from amqp_agents.outcome import Ack, DeadLetter, Outcome, Release, Retry
from amqp_agents.pipeline import Delivery, Gate
from amqp_agents.protocol.properties import Properties
from amqp_agents.routing.breaker_state import BreakerPolicy
from amqp_agents.routing.breakers import Breakers, Moved

DELIVERY = Delivery(b"", Properties(), "agent.a")
DOWN = DependencyFailedError("down")


class Guarded:
    """A handler behind a breaker that opens at the second failure in a row."""

    def __init__(self) -> None:
        policy = BreakerPolicy(consecutive=2, min_attempts=1000)
        self.breakers = Breakers(policy, jitter=lambda: 1.0)
        self.gate, self.clock = Gate(), ManualClock(frozen=True)
        self.moved: list[str] = []
        self.end: Outcome | BaseException = Ack()
        self.handle = circuit_breaker(
            "a", self.breakers, gate=self.gate, clock=self.clock, on_moved=self._note
        )(self._handle)

    def _note(self, moved: tuple[Moved, ...]) -> None:
        self.moved += [each.transition.new.value for each in moved]

    async def _handle(self, delivery: Delivery) -> Outcome:
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end

    async def ends(self, *ends: Outcome | BaseException) -> None:
        """Handle one delivery after the other, each to its end."""
        for self.end in ends:
            await asyncio.gather(self.handle(DELIVERY), return_exceptions=True)


@pytest.mark.parametrize("failure", [DOWN, Retry(1, DOWN), DeadLetter(DOWN)])
async def test_a_failure_counts_however_it_is_told(failure: Outcome | BaseException) -> None:
    guarded = Guarded()
    await guarded.ends(failure)
    assert not guarded.gate.closed
    await guarded.ends(failure)
    assert guarded.gate.closed
    assert guarded.moved == ["open"]


async def test_a_success_in_between_starts_the_count_again() -> None:
    guarded = Guarded()
    await guarded.ends(DOWN, Ack(), DOWN)
    assert not guarded.gate.closed


@pytest.mark.parametrize(
    "end",
    [
        Ack(ignored=True),
        Release("not here"),
        InvalidPayloadError("bad"),
        DeadLetter(InvalidPayloadError("bad")),
        asyncio.CancelledError(),
    ],
    ids=lambda end: type(end).__name__,
)
async def test_what_says_nothing_neither_counts_nor_resets(end: Outcome | BaseException) -> None:
    guarded = Guarded()
    await guarded.ends(DOWN, end, end)
    assert not guarded.gate.closed
    await guarded.ends(DOWN)
    assert guarded.gate.closed


async def test_the_gate_opens_by_itself_step_by_step() -> None:
    guarded = Guarded()
    await guarded.ends(DOWN, DOWN)
    await guarded.clock.advance(0.9)
    assert guarded.gate.limit == 0
    await guarded.clock.advance(0.2)
    assert guarded.gate.limit == 1
    limits = []
    for _ in range(9):
        await guarded.ends(Ack())
        limits.append(guarded.gate.limit)
    assert limits == [1, 1, 2, 2, 4, 4, 4, 4, None]
    assert guarded.moved == ["open", "half_open", "closed"]


async def test_what_is_refused_is_handed_back_at_once_only_where_nothing_is_consumed() -> None:
    guarded = Guarded()
    await guarded.ends(DOWN, DOWN)
    assert await guarded.handle(DELIVERY) == Release("the circuit is open")
    await guarded.clock.advance(1.1)
    probing = asyncio.Event()

    async def probe(delivery: Delivery) -> Outcome:
        await probing.wait()
        return Ack()

    handle = circuit_breaker(
        "a", guarded.breakers, gate=guarded.gate, clock=guarded.clock, on_moved=guarded._note
    )(probe)
    first = asyncio.create_task(handle(DELIVERY))
    await asyncio.sleep(0)
    second = asyncio.create_task(handle(DELIVERY))
    await guarded.clock.advance(0.9)
    assert not second.done()
    await guarded.clock.advance(0.2)
    assert await second == Release("the circuit is open")
    probing.set()
    assert await first == Ack()
