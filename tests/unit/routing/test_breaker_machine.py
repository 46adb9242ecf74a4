"""Any order of attempts, reports, waits and holds, on a clock of the test's own."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from amqp_agents.routing.breaker import Breaker
from amqp_agents.routing.breaker_state import BreakerPolicy, BreakerState

CLOSED, OPEN, HALF_OPEN, HELD = BreakerState

POLICY = BreakerPolicy(
    consecutive=3, min_attempts=6, window_seconds=20.0, probe_seconds=15.0, ramp_to=4
)
ALLOWED = {
    (CLOSED, OPEN),
    (OPEN, HALF_OPEN),
    (HALF_OPEN, OPEN),
    (HALF_OPEN, CLOSED),
    (HELD, HALF_OPEN),
    *((state, HELD) for state in BreakerState),
}
CHANCE = st.floats(0, 1, exclude_max=True)


class AnyOrder(RuleBasedStateMachine):
    permits = Bundle("permits")

    def __init__(self):
        super().__init__()
        self.now, self.chance = 1000.0, 0.5
        self.breaker = Breaker(POLICY, now=self.now, jitter=lambda: self.chance)
        self.seen = CLOSED
        self.row = self.probes = 0
        self.opened_at = self.not_before = self.now
        self.alive, self.probing = set(), None

    def told(self, transitions):
        for move in transitions:
            assert move.old is self.seen
            assert (move.old, move.new) in ALLOWED
            assert move.at == self.now
            assert move.reason
            self.seen = move.new
            self.row = self.probes = 0
            self.alive, self.probing = set(), None
            if move.new is OPEN:
                self.opened_at = self.now
        assert self.seen is self.breaker.state

    @rule(seconds=st.one_of(st.floats(0, 5), st.floats(0, 200)), chance=CHANCE)
    def wait(self, seconds, chance):
        self.now += seconds
        self.chance = chance
        self.told(self.breaker.advance(self.now))

    @rule(target=permits)
    def acquire(self):
        limit_before = self.breaker.limit
        admission = self.breaker.acquire(self.now)
        self.told(admission.transitions)
        if admission.permit is None:
            assert admission.retry_after_seconds > 0
            assert self.breaker.limit is not None
            return multiple()
        assert limit_before != 0 or admission.transitions
        assert self.seen in (CLOSED, HALF_OPEN)
        if self.seen is HALF_OPEN:
            assert self.probing is None
            self.probing = admission.permit
        self.alive.add(admission.permit)
        return admission.permit

    @rule(permit=permits)
    def succeed(self, permit):
        before, heard = self.seen, permit in self.alive
        self.alive.discard(permit)
        probe = permit is self.probing
        moved = self.breaker.succeeded(permit, self.now)
        if not heard:
            assert moved == ()
            return
        self.row = 0
        if before is HALF_OPEN:
            assert probe
            self.probing = None
            self.probes += 1
            assert bool(moved) == (self.probes == POLICY.probe_successes)
        self.told(moved)

    @rule(permit=permits, retry_after=st.none() | st.floats(0, 100), chance=CHANCE)
    def fail(self, permit, retry_after, chance):
        self.chance = chance
        before, heard = self.seen, permit in self.alive
        self.alive.discard(permit)
        moved = self.breaker.failed(permit, self.now, retry_after=retry_after)
        if not heard:
            assert moved == ()
            return
        self.row += 1
        if retry_after is not None:
            self.not_before = max(self.not_before, self.now + retry_after)
        if before is HALF_OPEN or self.row >= POLICY.consecutive:
            assert [t.new for t in moved] == [OPEN]
        self.told(moved)
        if self.seen is OPEN and retry_after is not None:
            assert self.breaker.wake_at >= self.now + retry_after

    @rule(permit=permits)
    def abandon(self, permit):
        before = self.breaker.status()
        self.alive.discard(permit)
        if permit is self.probing:
            self.probing = None
        assert self.breaker.abandoned(permit, self.now) == ()
        assert self.breaker.status() == before

    @rule(who=st.sampled_from(["ann", "bob"]))
    def hold(self, who):
        self.told(self.breaker.hold(self.now, who=who, why="test"))
        assert self.breaker.hold_of.who == who

    @rule()
    def resume(self):
        held = self.seen is HELD
        moved = self.breaker.resume(self.now, who="ann", why="test")
        assert bool(moved) == held
        self.told(moved)

    @rule(permit=permits, back=st.floats(0, 100))
    def report_with_an_earlier_time(self, permit, back):
        self.alive.discard(permit)
        if permit is self.probing:
            self.probing = None
        self.told(self.breaker.abandoned(permit, self.now - back))

    @invariant()
    def status_agrees_with_the_state(self):
        status = self.breaker.status()
        assert 0 <= status.failures <= status.attempts
        assert (status.hold is not None) == (status.state is HELD)
        assert (status.open_until is not None) == (status.state is OPEN)
        assert len(self.breaker._watched) <= POLICY.ramp_to

    @invariant()
    def open_never_outlasts_its_bounds(self):
        if self.seen is OPEN:
            longest = max(POLICY.longest_open_seconds + self.opened_at, self.not_before)
            assert self.now < self.breaker.wake_at <= longest

    def teardown(self):
        """Whatever happened, the target can come back."""
        if self.seen is HELD:
            self.told(self.breaker.resume(self.now, who="ann", why="end"))
        for _ in range(20):
            self.now += 4000.0
            self.told(self.breaker.advance(self.now))  # may fail a probe nobody reported
            self.now += 4000.0
            admission = self.breaker.acquire(self.now)
            assert admission.permit is not None
            self.told(admission.transitions + self.breaker.succeeded(admission.permit, self.now))
        assert self.breaker.state is CLOSED
        assert self.breaker.limit is None


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
