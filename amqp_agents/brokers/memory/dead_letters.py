"""What a queue owes to its dead-letter exchange."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from amqp_agents.brokers.memory.alarm import Alarm
from amqp_agents.brokers.memory.messages import Message, Reason
from amqp_agents.clock import Clock

WINDOW = 32  # how many are on their way at once; so many that cannot arrive stall the others
RETRY_SECONDS = 180.0


@dataclass(slots=True)
class DeadLetter:
    """A message that died, and the queues that have their copy already."""

    message: Message
    reason: Reason
    taken_by: set[str] = field(default_factory=set)


Forward: TypeAlias = Callable[[DeadLetter], bool]


class DeadLetters:
    """Passes dead messages on, in order; `forward` answers whether all targets took it.

    At most once: what finds no target is dropped. At least once: it is kept and tried again
    every `RETRY_SECONDS`.
    Source: RabbitMQ, quorum queues, "at-least-once dead lettering"; its default prefetch and
    confirm time-out.
    """

    def __init__(self, clock: Clock, forward: Forward) -> None:
        self._clock, self._forward = clock, forward
        self._waiting: deque[DeadLetter] = deque()
        self._stuck: list[DeadLetter] = []
        self._again = Alarm(clock, self._retry)

    def add(self, message: Message, reason: Reason, *, at_least_once: bool) -> None:
        """Pass one message on."""
        letter = DeadLetter(message, reason)
        if at_least_once:
            self._waiting.append(letter)
            self._go_on()
        else:
            self._forward(letter)

    def close(self) -> None:
        """Forget what is kept: its queue was deleted."""
        self._waiting.clear()
        self._stuck.clear()
        self._again.cancel()

    def _go_on(self) -> None:
        while self._waiting and len(self._stuck) < WINDOW:
            letter = self._waiting.popleft()
            if not self._forward(letter):
                self._stuck.append(letter)
                self._again.ask(self._clock.time() + RETRY_SECONDS)

    def _retry(self) -> None:
        self._waiting.extendleft(reversed(self._stuck))
        self._stuck.clear()
        self._go_on()
