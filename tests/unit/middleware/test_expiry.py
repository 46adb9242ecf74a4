from datetime import UTC, datetime
from typing import Any

import pytest

from amqp_agents.clock import ManualClock
from amqp_agents.errors import ExpiredMessageError
from amqp_agents.middleware import expiry
from amqp_agents.outcome import Ack, Outcome
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol import CLOCK_HEADER, AgentMessage
from amqp_agents.protocol.properties import Properties


async def accept(_: Delivery) -> Outcome:
    return Ack()


def unheard(_: Delivery, reason: str) -> None:
    assert reason == "a stale broadcast"


def delivery(clock: ManualClock, headers: dict[str, Any] | None = None, **fields: Any) -> Delivery:
    created = datetime.fromtimestamp(clock.time(), UTC)
    message = AgentMessage(sender="s", recipient="a", type="message", timestamp=created, **fields)
    return Delivery(b"", Properties(headers=headers or {}), "agent.a", message=message)


@pytest.mark.parametrize("fields", [{"ttl": 60}, {"ttl": None, "deadline_ms": 60_000}])
async def test_a_message_is_handled_until_its_life_is_over(fields: dict[str, Any]) -> None:
    clock = ManualClock(frozen=True)
    handle, arrived = expiry(clock, unheard)(accept), delivery(clock, **fields)
    await clock.advance(59)
    assert await handle(arrived) == Ack()
    await clock.advance(1.01)
    with pytest.raises(ExpiredMessageError):
        await handle(arrived)


async def test_a_message_that_never_expires_is_always_handled() -> None:
    clock = ManualClock(frozen=True)
    arrived = delivery(clock, ttl=None)
    await clock.advance(10**8)
    assert await expiry(clock, unheard)(accept)(arrived) == Ack()


async def test_a_replayed_message_is_young_again() -> None:
    clock = ManualClock(frozen=True)
    await clock.advance(3600)
    replayed_at = {CLOCK_HEADER: int(clock.time() * 1000)}
    arrived = delivery(ManualClock(frozen=True), replayed_at, ttl=60)
    assert await expiry(clock, unheard)(accept)(arrived) == Ack()


async def test_a_foreign_message_has_no_age() -> None:
    handle = expiry(ManualClock(frozen=True), unheard)(accept)
    assert await handle(Delivery(b"", Properties(), "agent.a")) == Ack()


@pytest.mark.parametrize("kind", ["broadcast", "heartbeat"])
async def test_a_stale_broadcast_is_dropped_but_one_that_failed_is_a_dead_letter(kind: str) -> None:
    clock = ManualClock(frozen=True)
    created = datetime.fromtimestamp(clock.time(), UTC)
    message = AgentMessage(sender="s", message_type=kind, timestamp=created, ttl=60)
    await clock.advance(61)
    first = Delivery(b"", Properties(), "agent.a", message=message)
    second = Delivery(b"", Properties(headers={"aa-attempt": 2}), "agent.a", message=message)
    assert await expiry(clock, unheard)(accept)(first) == Ack(ignored=True)
    with pytest.raises(ExpiredMessageError):
        await expiry(clock, unheard)(accept)(second)


async def test_a_stale_event_is_a_dead_letter() -> None:
    clock = ManualClock(frozen=True)
    created = datetime.fromtimestamp(clock.time(), UTC)
    message = AgentMessage(sender="s", type="event", intent="x", timestamp=created, ttl=60)
    await clock.advance(61)
    with pytest.raises(ExpiredMessageError):
        await expiry(clock, unheard)(accept)(
            Delivery(b"", Properties(), "agent.a", message=message)
        )
