"""A memory broker on a clock that stands still."""

import pytest

from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(frozen=True)


@pytest.fixture
def broker(clock: ManualClock) -> MemoryBroker:
    return MemoryBroker(clock=clock)
