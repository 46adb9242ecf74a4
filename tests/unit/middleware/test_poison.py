import pytest

from amqp_agents.errors import ErrorCode
from amqp_agents.middleware import poison
from amqp_agents.outcome import Ack, DeadLetter, Outcome
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol.properties import Properties


async def accept(_: Delivery) -> Outcome:
    return Ack()


def delivered(count: int | None, *, redelivered: bool = True) -> Delivery:
    return Delivery(b"", Properties(), "agent.a", redelivered=redelivered, delivery_count=count)


@pytest.mark.parametrize(
    "arrived",
    [delivered(None), delivered(0), delivered(9), delivered(10, redelivered=False)],
)
async def test_a_message_gets_its_chances(arrived: Delivery) -> None:
    assert await poison(10)(accept)(arrived) == Ack()


@pytest.mark.parametrize("count", [10, 11, 10**6])
async def test_whoever_took_it_died_of_it_and_nobody_takes_it_any_more(count: int) -> None:
    outcome = await poison(10)(accept)(delivered(count))
    assert isinstance(outcome, DeadLetter)
    assert f"delivered {count} times without settlement" in str(outcome.error)
    assert getattr(outcome.error, "code", None) is ErrorCode.CAPACITY_EXCEEDED
