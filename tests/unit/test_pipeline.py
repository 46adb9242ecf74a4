from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amqp_agents.outcome import Ack, Outcome
from amqp_agents.pipeline import ATTEMPT_HEADER, Delivery, Handler, Middleware, compose
from amqp_agents.protocol import CLOCK_HEADER, AgentMessage
from amqp_agents.protocol.properties import Properties

NOW = datetime(2026, 7, 13, 12, 0, tzinfo=UTC)


def delivery(message: AgentMessage | None = None, **headers: Any) -> Delivery:
    return Delivery(b"", Properties(headers=headers), "agent.a", message=message)


@pytest.mark.parametrize(
    "header", ["3", -5, 0, 10**9, None, 2.0, [3], True, b"3", {"n": 3}, float("nan")]
)
def test_an_attempt_nobody_of_ours_wrote_is_the_first(header: object) -> None:
    assert delivery(None, **{ATTEMPT_HEADER: header}).attempt == 1


def test_the_attempt_is_what_the_retry_copy_says() -> None:
    assert delivery(None, **{ATTEMPT_HEADER: 4}).attempt == 4
    assert delivery().attempt == 1


def message(**fields: Any) -> AgentMessage:
    return AgentMessage(sender="s", recipient="a", message_type="request", timestamp=NOW, **fields)


def test_life_ends_with_the_shorter_of_ttl_and_deadline() -> None:
    now = NOW.timestamp() + 10
    assert delivery(message(ttl=60)).life_seconds(now) == 50
    assert delivery(message(ttl=60, deadline_ms=15_000)).life_seconds(now) == 5
    assert delivery(message(ttl=5)).life_seconds(now) == 0
    assert delivery(message(ttl=None)).life_seconds(now) is None


def test_a_replay_makes_a_message_young_again() -> None:
    now = NOW + timedelta(hours=1)
    replayed = delivery(message(ttl=60), **{CLOCK_HEADER: int(now.timestamp() * 1000)})
    assert replayed.life_seconds(now.timestamp()) == 60


@pytest.mark.parametrize("strange", ["now", 1e12, True, None])
def test_a_clock_header_nobody_of_ours_wrote_does_not_count(strange: object) -> None:
    now = NOW.timestamp() + 3600
    assert delivery(message(ttl=60), **{CLOCK_HEADER: strange}).life_seconds(now) == 0


def test_a_foreign_message_has_no_age() -> None:
    assert delivery().life_seconds(0) is None


async def test_the_middleware_listed_first_sees_a_delivery_first_and_its_outcome_last() -> None:
    seen: list[str] = []

    def noting(name: str) -> Middleware:
        def wrap(handler: Handler) -> Handler:
            async def note(arrived: Delivery) -> Outcome:
                seen.append(f"{name} before")
                outcome = await handler(arrived)
                seen.append(f"{name} after")
                return outcome

            return note

        return wrap

    async def innermost(_: Delivery) -> Outcome:
        seen.append("handler")
        return Ack()

    await compose(innermost, [noting("outer"), noting("inner")])(delivery())
    assert seen == ["outer before", "inner before", "handler", "inner after", "outer after"]


async def test_without_middleware_the_handler_is_the_pipeline() -> None:
    async def alone(_: Delivery) -> Outcome:
        return Ack()

    assert compose(alone, []) is alone
