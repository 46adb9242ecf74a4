"""An agent that keeps failing is left alone for a while, and its inbox keeps the messages."""

from amqp_agents.clock import Clock, Timer
from amqp_agents.outcome import Ack, DeadLetter, Outcome, Release, Retry
from amqp_agents.pipeline import Delivery, Gate, Handler, Middleware
from amqp_agents.routing.attempt import Attempt, OnMoved
from amqp_agents.routing.breakers import Breakers, Moved

REFUSED = Release("the circuit is open")
PAUSE_SECONDS = 1.0
SHORTEST_WAKE_SECONDS = 0.001  # the clock may stand a hair before the time it was asked for


def circuit_breaker(
    agent: str, breakers: Breakers, *, gate: Gate, clock: Clock, on_moved: OnMoved
) -> Middleware:
    """Report every handling to the agent's breakers, and set the gate to what they allow.

    Callers' mistakes, ignored events, releases and cancellations count for nobody.
    `on_moved` hears of every change of state.
    """
    watch = _Watch(agent, breakers, gate=gate, clock=clock, on_moved=on_moved)

    def wrap(handler: Handler) -> Handler:
        async def guarded(delivery: Delivery) -> Outcome:
            with Attempt(breakers, agent, time=clock.time, on_moved=watch.moved) as attempt:
                if attempt.granted:
                    outcome = await handler(delivery)
                    _tell(attempt, outcome)
                    return outcome
            if not gate.closed:  # what is handed back comes again at once: not in a hot loop
                await clock.sleep(PAUSE_SECONDS)
            return REFUSED

        return guarded

    return wrap


def _tell(attempt: Attempt, outcome: Outcome) -> None:
    match outcome:
        case Retry(error=error) | DeadLetter(error=error):
            attempt.error = error
        case Release() | Ack(ignored=True):
            attempt.told = False


class _Watch:
    """Keeps the gate as the breakers say, also when nobody reports."""

    def __init__(
        self, agent: str, breakers: Breakers, *, gate: Gate, clock: Clock, on_moved: OnMoved
    ) -> None:
        self._agent, self._breakers = agent, breakers
        self._gate, self._clock, self._on_moved = gate, clock, on_moved
        self._timer: Timer | None = None
        self._due: float | None = None

    def moved(self, moved: tuple[Moved, ...]) -> None:
        """Tell what changed, set the gate, and come back when there is something to do."""
        if moved:
            self._on_moved(moved)
        self._gate.set(self._breakers.limit(self._agent))
        due = self._breakers.wake_at(self._agent)
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = due, None
        if due is not None:
            wait = max(SHORTEST_WAKE_SECONDS, due - self._clock.time())
            self._timer = self._clock.call_later(wait, self._wake)

    def _wake(self) -> None:
        self._due = self._timer = None
        self.moved(self._breakers.advance(self._clock.time()))
