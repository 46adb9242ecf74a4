import pytest

from amqp_agents.errors import ConfigurationError
from amqp_agents.routing.breaker import Breaker
from amqp_agents.routing.breaker_state import BreakerPolicy, BreakerState, Hold

CLOSED, OPEN, HALF_OPEN, HELD = BreakerState


def breaker(chance=1.0, **policy):
    return Breaker(BreakerPolicy(**policy), now=0.0, jitter=lambda: chance)


def fail(machine, now, times=1, **how):
    moved = ()
    for _ in range(times):
        admission = machine.acquire(now)
        moved += admission.transitions + machine.failed(admission.permit, now, **how)
    return moved


def succeed(machine, now, times=1):
    moved = ()
    for _ in range(times):
        admission = machine.acquire(now)
        moved += admission.transitions + machine.succeeded(admission.permit, now)
    return moved


def opened(**policy):
    machine = breaker(**policy)
    fail(machine, 0.0, 5)
    assert machine.state is OPEN
    return machine


def news(moved):
    return [(t.old, t.new) for t in moved]


def test_five_failures_in_a_row_open_it_however_far_apart():
    machine = breaker()
    moved = ()
    for hour in range(5):
        assert moved == ()
        moved = fail(machine, hour * 3600.0)
    assert news(moved) == [(CLOSED, OPEN)]
    assert moved[0].reason == "5 failures in a row"
    assert moved[0].at == 4 * 3600.0


def test_a_success_in_between_starts_the_row_again():
    machine = breaker()
    fail(machine, 0.0, 4)
    succeed(machine, 0.0)
    fail(machine, 0.0, 4)
    assert machine.state is CLOSED


def test_half_of_at_least_ten_attempts_within_a_minute_open_it():
    machine = breaker()
    for _ in range(4):
        fail(machine, 1.0)
        succeed(machine, 1.0)
    succeed(machine, 1.0)
    assert machine.state is CLOSED
    moved = fail(machine, 1.0)
    assert news(moved) == [(CLOSED, OPEN)]
    assert moved[0].reason == "5 of 10 attempts failed"


def test_failures_older_than_the_window_count_for_nothing():
    machine = breaker()
    for _ in range(4):
        fail(machine, 0.0)
        succeed(machine, 0.0)
    succeed(machine, 61.0)
    fail(machine, 61.0)
    assert machine.state is CLOSED


def test_it_opens_when_nothing_ever_succeeded():
    assert opened().status().attempts == 5


def test_abandoned_attempts_neither_count_nor_reset():
    machine = breaker()
    fail(machine, 0.0, 4)
    for _ in range(20):
        assert machine.abandoned(machine.acquire(0.0).permit, 0.0) == ()
    assert machine.status().attempts == 4
    assert news(fail(machine, 0.0)) == [(CLOSED, OPEN)]


def test_open_refuses_and_says_how_long():
    machine = opened()
    admission = machine.acquire(0.25)
    assert admission.permit is None
    assert admission.retry_after_seconds == 0.75


def test_each_failed_probe_doubles_the_open_time_up_to_a_minute():
    machine, waits = opened(), []
    for _ in range(8):
        waits.append(machine.wake_at - machine.status().since)
        fail(machine, machine.wake_at)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.1), (0.5, 0.5), (7.0, 1.0), (-1.0, 0.1)])
def test_jitter_is_full_and_never_leaves_its_bounds(chance, wait):
    machine = breaker(chance)
    fail(machine, 0.0, 5)
    assert machine.wake_at == wait


def test_retry_after_is_the_least_it_waits_also_beyond_a_minute():
    machine = breaker(0.0)
    fail(machine, 0.0, 4)
    fail(machine, 0.0, retry_after=90.0)
    assert machine.wake_at == 90.0
    assert machine.advance(89.9) == ()
    assert news(machine.advance(90.0)) == [(OPEN, HALF_OPEN)]


@pytest.mark.parametrize("asked", [1e12, float("inf")])
def test_an_absurd_retry_after_is_cut(asked):
    machine = breaker()
    fail(machine, 0.0, 5, retry_after=asked)
    assert machine.wake_at == 3600.0


@pytest.mark.parametrize("asked", [float("nan"), -5.0, 0.0])
def test_a_senseless_retry_after_is_none(asked):
    machine = breaker()
    fail(machine, 0.0, 5, retry_after=asked)
    assert machine.wake_at == 1.0


def test_half_open_lets_one_probe_pass_at_a_time():
    machine = opened()
    first = machine.acquire(1.0)
    assert news(first.transitions) == [(OPEN, HALF_OPEN)]
    assert machine.limit == 1
    refused = machine.acquire(1.0)
    assert refused.permit is None
    assert refused.retry_after_seconds > 0
    machine.succeeded(first.permit, 1.5)
    assert machine.state is HALF_OPEN
    assert machine.acquire(1.5).permit is not None


def test_two_probes_close_it_then_the_limit_doubles_with_each_run_of_successes():
    machine = opened()
    moved = succeed(machine, 1.0, 2)
    assert news(moved) == [(OPEN, HALF_OPEN), (HALF_OPEN, CLOSED)]
    limits = [machine.limit]
    for run in (1, 2, 4):
        succeed(machine, 2.0, run)
        limits.append(machine.limit)
    assert limits == [1, 2, 4, None]


def test_the_ramp_bounds_what_runs_at_once():
    machine = opened()
    succeed(machine, 1.0, 3)
    assert machine.limit == 2
    assert machine.acquire(1.0).permit
    assert machine.acquire(1.0).permit
    assert machine.acquire(1.0).permit is None


def test_a_failure_on_the_ramp_starts_the_run_again():
    machine = opened()
    succeed(machine, 1.0, 4)
    fail(machine, 1.0)
    succeed(machine, 1.0)
    assert machine.limit == 2
    succeed(machine, 1.0)
    assert machine.limit == 4


def test_one_that_fails_again_on_the_ramp_stays_open_longer():
    machine = opened()
    succeed(machine, 1.0, 2)
    fail(machine, 1.0, 5)
    assert machine.wake_at == 3.0


def test_one_that_was_fully_well_starts_with_the_short_time_again():
    machine = opened()
    succeed(machine, 1.0, 2 + 1 + 2 + 4)
    assert machine.quiet
    fail(machine, 10.0, 5)
    assert machine.wake_at == 11.0


def test_what_failed_before_it_closed_is_forgotten():
    machine = opened()
    succeed(machine, 1.0, 2)
    fail(machine, 1.0, 4)
    assert machine.state is CLOSED


def test_a_probe_that_never_reports_counts_as_failed_and_its_late_report_is_ignored():
    machine = opened(probe_seconds=10.0)
    lost = machine.acquire(1.0).permit
    assert machine.wake_at == 11.0
    moved = machine.advance(11.0)
    assert news(moved) == [(HALF_OPEN, OPEN)]
    assert moved[0].reason == "the probe never reported"
    assert machine.succeeded(lost, 11.5) == ()
    assert machine.state is OPEN


def test_a_probe_of_a_callers_mistake_makes_room_for_the_next():
    machine = opened()
    machine.abandoned(machine.acquire(1.0).permit, 1.0)
    assert machine.state is HALF_OPEN
    assert machine.acquire(1.0).permit is not None


def test_attempts_that_were_running_when_it_opened_are_not_heard():
    machine = breaker()
    running = [machine.acquire(0.0).permit for _ in range(8)]
    for permit in running[:5]:
        machine.failed(permit, 0.0)
    assert machine.failed(running[5], 0.5) == ()
    assert machine.succeeded(running[6], 0.5) == ()
    assert news(machine.failed(running[7], 1.0)) == [(OPEN, HALF_OPEN)]


def test_a_permit_is_good_for_one_report():
    machine = breaker()
    permit = machine.acquire(0.0).permit
    for _ in range(10):
        machine.failed(permit, 0.0)
    assert machine.status().failures == 1


def test_a_hold_stops_everything_and_says_who_why_and_when():
    machine = breaker()
    running = machine.acquire(0.0).permit
    moved = machine.hold(5.0, who="ann", why="migration")
    assert news(moved) == [(CLOSED, HELD)]
    assert moved[0].reason == "held by ann: migration"
    assert machine.status().hold == Hold("ann", "migration", 5.0)
    assert machine.succeeded(running, 6.0) == ()
    assert machine.advance(1e9) == ()
    assert machine.acquire(1e9).permit is None


def test_resume_probes_first():
    machine = breaker()
    machine.hold(0.0, who="ann", why="migration")
    moved = machine.resume(9.0, who="bob", why="done")
    assert news(moved) == [(HELD, HALF_OPEN)]
    assert moved[0].reason == "resumed by bob: done"
    assert machine.hold_of is None
    assert news(succeed(machine, 9.0, 2)) == [(HALF_OPEN, CLOSED)]


def test_resume_without_a_hold_changes_nothing():
    machine = opened()
    assert machine.resume(0.5, who="bob", why="impatient") == ()
    assert machine.state is OPEN


def test_the_latest_hold_stands():
    machine = breaker()
    machine.hold(0.0, who="ann", why="a")
    assert news(machine.hold(1.0, who="bob", why="b")) == [(HELD, HELD)]
    assert machine.hold_of == Hold("bob", "b", 1.0)


def test_time_that_runs_backwards_stands_still():
    machine = breaker()
    fail(machine, 100.0, 5)
    assert machine.acquire(0.0).retry_after_seconds == 1.0
    assert machine.state is OPEN


@pytest.mark.parametrize(
    "wrong",
    [{"consecutive": 0}, {"failure_ratio": 1.5}, {"probe_seconds": float("inf")}, {"ramp_to": -1}],
)
def test_a_policy_that_never_opens_or_never_closes_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        BreakerPolicy(**wrong)
