import pytest

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.middleware import hop_limit
from amqp_agents.outcome import Ack, Outcome
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol.properties import Properties


async def accept(_: Delivery) -> Outcome:
    return Ack()


def at_depth(depth: object) -> Delivery:
    return Delivery(b"", Properties(headers={"aa-depth": depth}), "agent.a")


@pytest.mark.parametrize("depth", [None, 0, 16, -5, "17", 17.0, True])
async def test_what_is_not_too_deep_is_handled(depth: object) -> None:
    assert await hop_limit(16, "aa-depth")(accept)(at_depth(depth)) == Ack()


@pytest.mark.parametrize("depth", [17, 2**62])
async def test_what_is_too_deep_is_refused_with_the_likely_cause(depth: int) -> None:
    with pytest.raises(InvalidPayloadError, match=r"at most 16: do agents ask each other in a"):
        await hop_limit(16, "aa-depth")(accept)(at_depth(depth))
