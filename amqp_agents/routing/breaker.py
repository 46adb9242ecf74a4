"""The circuit breaker: closed, open, half_open, held. Time is handed in; nothing waits."""

import random
from collections.abc import Callable

from amqp_agents.routing.breaker_state import (
    Admission,
    BreakerPolicy,
    BreakerState,
    BreakerStatus,
    Hold,
    Permit,
    Transition,
)
from amqp_agents.routing.window import Window

Transitions = tuple[Transition, ...]


class Breaker:
    """Stops attempts at what keeps failing, and lets it come back step by step.

    Every attempt takes a permit and reports it once: `succeeded`, `failed`, or `abandoned` (a
    caller's mistake: neither counts nor resets). No report ever raises: one that is late, doubled
    or of an earlier epoch is ignored. Time that runs backwards stands still.

    >>> breaker = Breaker(BreakerPolicy(consecutive=1), now=0.0, jitter=lambda: 1.0)
    >>> moved = breaker.failed(breaker.acquire(0.0).permit, 0.0)
    >>> [(t.old.value, t.new.value, t.reason) for t in moved]
    [('closed', 'open', '1 failure in a row')]
    >>> breaker.acquire(0.5).retry_after_seconds
    0.5
    >>> [breaker.succeeded(breaker.acquire(1.0).permit, 1.0) for _ in range(2)][-1][-1].new.value
    'closed'
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        *,
        now: float,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.policy = policy if policy is not None else BreakerPolicy()
        self.state = BreakerState.CLOSED
        self.hold_of: Hold | None = None
        self.epoch = 0
        self._jitter = jitter
        self._now = self._since = self._open_until = self._not_before = now
        self._reason = "new"
        self._window = Window(self.policy.window_seconds)
        self._consecutive = self._openings = self._run = 0
        self._ramp: int | None = None
        self._watched: list[Permit] = []

    @property
    def limit(self) -> int | None:
        """How many attempts may run at once; None for no limit of the breaker's own."""
        if self.state is BreakerState.CLOSED:
            return self._ramp
        return 1 if self.state is BreakerState.HALF_OPEN else 0

    @property
    def wake_at(self) -> float | None:
        """When `advance` next has something to do, without anybody's report."""
        if self.state is BreakerState.OPEN:
            return self._open_until
        return min((permit.deadline for permit in self._watched), default=None)

    @property
    def used_at(self) -> float:
        """When it was last asked or told anything."""
        return self._now

    @property
    def quiet(self) -> bool:
        """Whether it is as good as new: fully closed, and no failure it still remembers."""
        well = self.state is BreakerState.CLOSED and self._ramp is None
        return well and not self._consecutive and not self._window.counts(self._now)[1]

    def acquire(self, now: float) -> Admission:
        """Ask for one attempt; a refusal says how long to wait before asking again."""
        moved = self.advance(now)
        limit = self.limit
        if limit is not None and len(self._watched) >= limit:
            return Admission(None, moved, self.retry_after_seconds())
        permit = Permit(self.epoch, self._now + self.policy.probe_seconds)
        if limit is not None:
            self._watched.append(permit)
        return Admission(permit, moved)

    def succeeded(self, permit: Permit, now: float) -> Transitions:
        """Report an attempt that worked."""
        moved = self.advance(now)
        if not self._redeem(permit):
            return moved
        self._window.add(self._now, failed=False)
        self._consecutive = 0
        self._run += 1
        if self.state is BreakerState.HALF_OPEN:
            return moved + self._close_if_proven()
        if self._ramp is not None and self._run >= self._ramp:
            self._ramp_up(self._ramp * 2)
        return moved

    def failed(
        self, permit: Permit, now: float, *, retry_after: float | None = None
    ) -> Transitions:
        """Report a failure of the agent or its dependency.

        Units:  `retry_after` seconds: no probe before they have passed, should this one open it.
        """
        moved = self.advance(now)
        if not self._redeem(permit):
            return moved
        if retry_after is not None and retry_after > 0:
            wait = min(retry_after, self.policy.longest_retry_after)
            self._not_before = max(self._not_before, self._now + wait)
        return moved + self._count_failure("the probe failed")

    def abandoned(self, permit: Permit, now: float) -> Transitions:
        """Give a permit back without a verdict: the attempt says nothing about the target."""
        moved = self.advance(now)
        self._redeem(permit)
        return moved

    def advance(self, now: float) -> Transitions:
        """Let time pass: probes that never reported fail, an open time ends."""
        self._now = max(self._now, now)
        moved: list[Transition] = []
        while (late := self._overdue()) is not None:
            self._redeem(late)
            moved.extend(self._count_failure("the probe never reported"))
        if self.state is BreakerState.OPEN and self._open_until <= self._now:
            moved.append(self._enter(BreakerState.HALF_OPEN, "the open time is over"))
        return tuple(moved)

    def hold(self, now: float, *, who: str, why: str) -> Transitions:
        """Stop everything until `resume`, whatever reports say; the latest hold stands."""
        moved = self.advance(now)
        entered = self._enter(BreakerState.HELD, f"held by {who}: {why}")
        self.hold_of = Hold(who, why, self._now)
        return (*moved, entered)

    def resume(self, now: float, *, who: str, why: str) -> Transitions:
        """End a hold: half_open, since nobody knows what became of the target meanwhile.

        Without a hold nothing changes.
        """
        moved = self.advance(now)
        if self.state is not BreakerState.HELD:
            return moved
        return (*moved, self._enter(BreakerState.HALF_OPEN, f"resumed by {who}: {why}"))

    def retry_after_seconds(self) -> float:
        """Return how long a refused caller should wait, as of the last time told."""
        if self.state is BreakerState.OPEN:
            return self._open_until - self._now
        if self.state is BreakerState.HELD:
            return self.policy.longest_open_seconds
        return self.policy.first_open_seconds

    def status(self) -> BreakerStatus:
        """Return what it looks like, as of the last time told."""
        attempts, failures = self._window.counts(self._now)
        return BreakerStatus(
            state=self.state,
            since=self._since,
            reason=self._reason,
            limit=self.limit,
            attempts=attempts,
            failures=failures,
            consecutive=self._consecutive,
            open_until=self._open_until if self.state is BreakerState.OPEN else None,
            hold=self.hold_of,
        )

    def _overdue(self) -> Permit | None:
        return next((p for p in self._watched if p.deadline <= self._now), None)

    def _redeem(self, permit: Permit) -> bool:
        """Whether the report counts: the first one, of this epoch."""
        counts = not permit.spent and permit.epoch == self.epoch
        permit.spent = True
        if permit in self._watched:
            self._watched.remove(permit)
        return counts

    def _count_failure(self, probe_reason: str) -> Transitions:
        self._window.add(self._now, failed=True)
        self._consecutive += 1
        self._run = 0
        half_open = self.state is BreakerState.HALF_OPEN
        reason = probe_reason if half_open else self._too_many()
        return () if reason is None else (self._open(reason),)

    def _too_many(self) -> str | None:
        if self._consecutive >= self.policy.consecutive:
            plural = "" if self._consecutive == 1 else "s"
            return f"{self._consecutive} failure{plural} in a row"
        attempts, failures = self._window.counts(self._now)
        enough = attempts >= self.policy.min_attempts
        if enough and failures >= self.policy.failure_ratio * attempts:
            return f"{failures} of {attempts} attempts failed"
        return None

    def _open(self, reason: str) -> Transition:
        wait = self.policy.open_seconds(self._openings, self._jitter())
        self._open_until = max(self._now + wait, self._not_before)
        self._openings += 1
        return self._enter(BreakerState.OPEN, reason)

    def _close_if_proven(self) -> Transitions:
        if self._run < self.policy.probe_successes:
            return ()
        entered = self._enter(BreakerState.CLOSED, f"{self._run} probes succeeded")
        self._window.clear()
        self._not_before = self._now
        self._ramp_up(1)
        return (entered,)

    def _ramp_up(self, limit: int) -> None:
        self._run = 0
        self._ramp = limit
        if limit >= self.policy.ramp_to:
            # Only now is it well again: one that fails on the way up stays open longer each time.
            self._ramp = None
            self._openings = 0
            self._watched.clear()

    def _enter(self, new: BreakerState, reason: str) -> Transition:
        transition = Transition(self.state, new, reason, self._now)
        self.state, self._reason, self._since = new, reason, self._now
        self.hold_of, self._ramp = None, None
        self.epoch += 1
        self._run = self._consecutive = 0
        self._watched.clear()
        return transition
