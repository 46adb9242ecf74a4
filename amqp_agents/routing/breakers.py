"""All breakers of one process: one for each agent, and one for each of its failing dependencies."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from amqp_agents.routing.breaker import Breaker
from amqp_agents.routing.breaker_state import (
    Admission,
    BreakerPolicy,
    BreakerState,
    BreakerStatus,
    Permit,
    Transition,
)
from amqp_agents.routing.failures import counts_as_failure, dependency_of, retry_after_of

MOST_BREAKERS = 1000


@dataclass(frozen=True, slots=True, order=True)
class BreakerKey:
    """Who fails: an agent, or (`dependency`) something beneath it; "" is the agent itself."""

    agent: str
    dependency: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """A transition, and whose."""

    key: BreakerKey
    transition: Transition


@dataclass(frozen=True, slots=True)
class Passage:
    """The answer of all breakers of one agent: permits of each, or none and a wait.

    Report it once, with `Breakers.report`.
    """

    agent: str
    permits: Mapping[str, tuple[Breaker, Permit]]
    moved: tuple[Moved, ...] = ()
    retry_after_seconds: float = 0.0

    @property
    def granted(self) -> bool:
        """Whether the attempt may be made."""
        return bool(self.permits)


class Breakers:
    """Machines by key; an agent may try only when its own and its dependencies' all agree.

    A handling that succeeds speaks for all of them. One that fails speaks for the dependency
    the error names, else for the agent, and leaves the others as they were. At most `most` are
    kept: the longest unused closed one goes first, one held by an operator never.

    >>> from amqp_agents.errors import DependencyFailedError
    >>> breakers = Breakers(BreakerPolicy(consecutive=1), jitter=lambda: 1.0)
    >>> passage = breakers.acquire("order_agent", 0.0)
    >>> moved = breakers.report(passage, 0.0, error=DependencyFailedError("database down"))
    >>> moved[0].key.agent, moved[0].transition.new.value
    ('order_agent', 'open')
    >>> breakers.acquire("order_agent", 0.5).granted, breakers.limit("order_agent")
    (False, 0)
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        *,
        blame: Callable[[BaseException], str | None] = dependency_of,
        jitter: Callable[[], float] = random.random,
        most: int = MOST_BREAKERS,
    ) -> None:
        self._policy = policy if policy is not None else BreakerPolicy()
        self._blame, self._jitter, self._most = blame, jitter, most
        self._agents: dict[str, dict[str, Breaker]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def acquire(self, agent: str, now: float) -> Passage:
        """Ask every breaker of the agent; a refusal by one gives the others' permits back."""
        self._machine(BreakerKey(agent), now)
        self._forget_quiet(agent)
        answers = {name: b.acquire(now) for name, b in self._agents[agent].items()}
        moved = _moved(agent, answers)
        permits = {
            name: (self._agents[agent][name], answer.permit)
            for name, answer in answers.items()
            if answer.permit is not None
        }
        if len(permits) == len(answers):
            return Passage(agent, permits, moved)
        for machine, permit in permits.values():
            machine.abandoned(permit, now)
        wait = max(a.retry_after_seconds for a in answers.values() if a.permit is None)
        return Passage(agent, {}, moved, wait)

    def report(
        self, passage: Passage, now: float, *, error: BaseException | None = None
    ) -> tuple[Moved, ...]:
        """Say how an attempt ended; None is a success, a sender's mistake counts for nobody."""
        if not passage.granted:
            return ()
        blamed = None
        if error is not None and counts_as_failure(error):
            blamed = self._blamed(passage.agent, error)
        moved: list[Moved] = []
        for name, (machine, permit) in passage.permits.items():
            key = BreakerKey(passage.agent, name)
            if error is None:
                transitions = machine.succeeded(permit, now)
            elif name != blamed or self.get(key) is not machine:
                transitions = machine.abandoned(permit, now)
            else:
                wait = retry_after_of(error, now)
                blamed = None
                transitions = machine.failed(permit, now, retry_after=wait)
            moved.extend(Moved(key, t) for t in transitions)
        if error is not None and blamed is not None:
            moved.extend(self._fail_new(BreakerKey(passage.agent, blamed), error, now))
        return tuple(moved)

    def abandon(self, passage: Passage, now: float) -> tuple[Moved, ...]:
        """Give a passage back without a verdict, as for an event nobody here handles."""
        return tuple(
            Moved(BreakerKey(passage.agent, name), transition)
            for name, (machine, permit) in passage.permits.items()
            for transition in machine.abandoned(permit, now)
        )

    def advance(self, now: float) -> tuple[Moved, ...]:
        """Let time pass for all of them."""
        return tuple(Moved(key, t) for key, machine in self._all() for t in machine.advance(now))

    def hold(self, key: BreakerKey, now: float, *, who: str, why: str) -> tuple[Moved, ...]:
        """Stop the agent (or what needs the dependency) until `resume`."""
        machine = self._machine(key, now)
        return tuple(Moved(key, t) for t in machine.hold(now, who=who, why=why))

    def resume(self, key: BreakerKey, now: float, *, who: str, why: str) -> tuple[Moved, ...]:
        """End a hold; nothing changes where there is none."""
        machine = self.get(key)
        if machine is None:
            return ()
        return tuple(Moved(key, t) for t in machine.resume(now, who=who, why=why))

    def get(self, key: BreakerKey) -> Breaker | None:
        """Return the machine, if there is one."""
        return self._agents.get(key.agent, {}).get(key.dependency)

    def limit(self, agent: str) -> int | None:
        """Return how many attempts the agent may make at once: the strictest; None for any."""
        limits = [machine.limit for machine in self._agents.get(agent, {}).values()]
        return min((limit for limit in limits if limit is not None), default=None)

    def wake_at(self, agent: str) -> float | None:
        """Return when `advance` next has something to do for the agent."""
        times = [machine.wake_at for machine in self._agents.get(agent, {}).values()]
        return min((at for at in times if at is not None), default=None)

    def snapshot(self) -> dict[BreakerKey, BreakerStatus]:
        """Return every breaker as of the last time it was told; sorted by key."""
        return {key: machine.status() for key, machine in sorted(self._all(), key=_by_key)}

    def _all(self) -> Iterator[tuple[BreakerKey, Breaker]]:
        for agent, machines in self._agents.items():
            for dependency, machine in machines.items():
                yield BreakerKey(agent, dependency), machine

    def _blamed(self, agent: str, error: BaseException) -> str:
        name = self._blame(error) or ""
        # Names may come from outside (hosts): without room for another one the agent is blamed.
        known = self.get(BreakerKey(agent, name)) is not None
        return name if known or self._make_room(of_closed_only=True, keep=agent) else ""

    def _fail_new(self, key: BreakerKey, error: BaseException, now: float) -> Iterator[Moved]:
        machine = self._machine(key, now)
        permit = machine.acquire(now).permit if machine.epoch == 0 else None
        if permit is not None:  # else the attempt began before the machine's last transition
            wait = retry_after_of(error, now)
            yield from (Moved(key, t) for t in machine.failed(permit, now, retry_after=wait))

    def _machine(self, key: BreakerKey, now: float) -> Breaker:
        machine = self.get(key)
        if machine is None:
            self._make_room(of_closed_only=False, keep=key.agent)
            machine = Breaker(self._policy, now=now, jitter=self._jitter)
            self._agents.setdefault(key.agent, {})[key.dependency] = machine
            self._size += 1
        return machine

    def _forget_quiet(self, agent: str) -> None:
        machines = self._agents[agent]
        for name in [name for name, m in machines.items() if name and m.quiet]:
            self._drop(BreakerKey(agent, name))

    def _make_room(self, *, of_closed_only: bool, keep: str) -> bool:
        if self._size < self._most:
            return True
        dispensable = [
            (machine.state is not BreakerState.CLOSED, machine.used_at, key)
            for key, machine in self._all()
            if machine.state is not BreakerState.HELD and key != BreakerKey(keep)
        ]
        least = min(dispensable, default=None)
        if least is None or (of_closed_only and least[0]):
            return False
        self._drop(least[2])
        return True

    def _drop(self, key: BreakerKey) -> None:
        del self._agents[key.agent][key.dependency]
        self._size -= 1
        if not self._agents[key.agent]:
            del self._agents[key.agent]


def _moved(agent: str, answers: Mapping[str, Admission]) -> tuple[Moved, ...]:
    return tuple(
        Moved(BreakerKey(agent, name), transition)
        for name, answer in answers.items()
        for transition in answer.transitions
    )


def _by_key(entry: tuple[BreakerKey, Breaker]) -> BreakerKey:
    return entry[0]
