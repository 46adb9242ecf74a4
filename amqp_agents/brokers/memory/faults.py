"""What can go wrong between client and broker, on demand, for tests of what happens then."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from amqp_agents.brokers.base import Publishing


class Fault(Enum):
    """What becomes of one publish instead of a confirm."""

    REJECTED = auto()
    LOST = auto()  # the message never arrived, and nobody says so
    CONFIRM_LOST = auto()  # the message arrived, its confirm did not


@dataclass
class _Planned:
    fault: Fault
    times: int
    exchange: str | None


class Faults:
    """Makes the next publishes of a `MemoryBroker` fail, or its connection be away.

    With `exchange` only publishes to that exchange are meant; the others pass.
    """

    def __init__(self, *, disconnect: Callable[[], None], reconnect: Callable[[], None]) -> None:
        self._planned: list[_Planned] = []
        self._disconnect, self._reconnect = disconnect, reconnect

    def reject(self, times: int = 1, *, exchange: str | None = None) -> None:
        """Answer the next publishes with a negative confirm."""
        self._planned.append(_Planned(Fault.REJECTED, times, exchange))

    def lose(self, times: int = 1, *, exchange: str | None = None, stored: bool = True) -> None:
        """Leave the next publishes without an answer; `stored` if they arrived all the same."""
        fault = Fault.CONFIRM_LOST if stored else Fault.LOST
        self._planned.append(_Planned(fault, times, exchange))

    def disconnect(self) -> None:
        """Lose the connection, with every delivery that is unsettled, until `reconnect`."""
        self._disconnect()

    def reconnect(self) -> None:
        """Have the connection back; subscriptions go on."""
        self._reconnect()

    def take(self, publishing: Publishing) -> Fault | None:
        """Return what is to happen to this publish, once."""
        for planned in self._planned:
            if planned.times > 0 and planned.exchange in (None, publishing.exchange):
                planned.times -= 1
                return planned.fault
        return None
