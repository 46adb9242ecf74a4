import pytest

from amqp_agents.errors import (
    CapacityExceededError,
    DependencyFailedError,
    InvalidPayloadError,
    PermissionDeniedError,
)
from amqp_agents.routing.breaker_state import BreakerPolicy, BreakerState
from amqp_agents.routing.breakers import BreakerKey, Breakers

CLOSED, OPEN, HALF_OPEN, HELD = BreakerState


class ModelDownError(DependencyFailedError):
    dependency = "model:gpt-x"


class HostDownError(DependencyFailedError):
    def __init__(self, host):
        self.dependency = f"http:{host}"
        super().__init__(host)


def breakers(*, most=1000, **policy):
    return Breakers(BreakerPolicy(**policy), jitter=lambda: 1.0, most=most)


def attempt(machines, agent, now, error=None):
    passage = machines.acquire(agent, now)
    assert passage.granted
    return passage.moved + machines.report(passage, now, error=error)


def states(machines):
    return {key: status.state for key, status in machines.snapshot().items()}


def test_callers_mistakes_open_nothing_and_reset_nothing():
    machines = breakers(consecutive=3)
    mistakes = [InvalidPayloadError("bad"), PermissionDeniedError("no")]
    for _ in range(10):
        attempt(machines, "order_agent", 0.0, mistakes[0])
    attempt(machines, "order_agent", 0.0)
    assert machines.get(BreakerKey("order_agent")).state is CLOSED
    for mistake in mistakes:
        attempt(machines, "order_agent", 0.0, DependencyFailedError("db"))
        attempt(machines, "order_agent", 0.0, mistake)
    moved = attempt(machines, "order_agent", 0.0, DependencyFailedError("db"))
    assert [(m.key, m.transition.new) for m in moved] == [(BreakerKey("order_agent"), OPEN)]


def test_one_sick_target_never_stops_another():
    machines = breakers(consecutive=3)
    for _ in range(3):
        attempt(machines, "sick_agent", 0.0, DependencyFailedError("db"))
        attempt(machines, "well_agent", 0.0)
    refused = machines.acquire("sick_agent", 0.0)
    assert not refused.granted
    assert refused.retry_after_seconds == 1.0
    assert machines.acquire("well_agent", 0.0).granted


def test_a_named_dependency_is_blamed_instead_of_the_agent():
    machines = breakers(consecutive=3)
    for _ in range(3):
        attempt(machines, "order_agent", 0.0, ModelDownError("gone"))
    assert states(machines) == {
        BreakerKey("order_agent"): CLOSED,
        BreakerKey("order_agent", "model:gpt-x"): OPEN,
    }
    assert machines.limit("order_agent") == 0
    assert machines.wake_at("order_agent") == 1.0


def test_an_unnamed_failure_leaves_the_dependencies_as_they_were():
    machines = breakers(consecutive=3)
    attempt(machines, "order_agent", 0.0, ModelDownError("gone"))
    attempt(machines, "order_agent", 0.0, KeyError("x"))
    snapshot = machines.snapshot()
    assert [status.failures for status in snapshot.values()] == [1, 1]


def test_attempts_that_ran_when_a_dependency_first_failed_count_against_it():
    machines = breakers(consecutive=3)
    running = [machines.acquire("order_agent", 0.0) for _ in range(5)]
    moved = [m for p in running for m in machines.report(p, 0.0, error=ModelDownError("gone"))]
    assert [m.transition.new for m in moved] == [OPEN]


def test_such_an_attempt_that_ends_later_does_not_disturb_the_probe():
    machines = breakers(consecutive=1)
    early = machines.acquire("order_agent", 0.0)
    attempt(machines, "order_agent", 0.0, ModelDownError("gone"))
    probe = machines.acquire("order_agent", 1.0)
    assert probe.granted
    assert machines.report(early, 1.0, error=ModelDownError("gone")) == ()
    machines.report(probe, 1.0)
    assert machines.get(BreakerKey("order_agent", "model:gpt-x")).state is HALF_OPEN


def test_a_refusal_by_one_takes_no_probe_of_another():
    machines = breakers(consecutive=1)
    early = [machines.acquire("order_agent", 0.0) for _ in range(2)]
    machines.report(early[0], 0.0, error=HostDownError("a"))
    machines.report(early[1], 0.0, error=HostDownError("b"))
    machines.hold(BreakerKey("order_agent", "http:b"), 0.0, who="ann", why="x")
    assert not machines.acquire("order_agent", 1.0).granted
    machines.resume(BreakerKey("order_agent", "http:b"), 1.0, who="ann", why="x")
    assert machines.acquire("order_agent", 1.0).granted


def test_two_probes_of_the_agent_close_all_that_was_open():
    machines = breakers(consecutive=1)
    attempt(machines, "order_agent", 0.0, ModelDownError("gone"))
    attempt(machines, "order_agent", 1.0)
    moved = attempt(machines, "order_agent", 1.0)
    assert [m.transition.new for m in moved] == [CLOSED]
    assert machines.limit("order_agent") == 1


def test_a_dependency_that_is_well_again_is_forgotten():
    machines = breakers()
    attempt(machines, "order_agent", 0.0, ModelDownError("gone"))
    attempt(machines, "order_agent", 1.0)
    assert len(machines) == 2
    attempt(machines, "order_agent", 100.0)
    attempt(machines, "order_agent", 100.0)
    assert list(machines.snapshot()) == [BreakerKey("order_agent")]


def test_a_failure_of_one_that_was_forgotten_meanwhile_still_counts():
    machines = breakers()
    attempt(machines, "order_agent", 0.0, ModelDownError("gone"))
    slow = machines.acquire("order_agent", 1.0)
    for _ in range(2):
        attempt(machines, "order_agent", 100.0)
    attempt(machines, "order_agent", 100.0)
    machines.report(slow, 100.0, error=ModelDownError("gone"))
    assert machines.get(BreakerKey("order_agent", "model:gpt-x")).status().failures == 1


def test_what_the_failing_side_asks_for_is_waited_for():
    machines = breakers(consecutive=1)
    error = CapacityExceededError("full", suggested_retry_after=30)
    attempt(machines, "order_agent", 0.0, error)
    assert machines.acquire("order_agent", 1.0).retry_after_seconds == 29.0


def test_a_passage_that_was_refused_reports_nothing():
    machines = breakers(consecutive=1)
    attempt(machines, "order_agent", 0.0, KeyError("x"))
    refused = machines.acquire("order_agent", 0.0)
    assert machines.report(refused, 0.0, error=KeyError("x")) == ()


def test_the_number_of_breakers_is_bounded_and_the_longest_unused_goes_first():
    machines = breakers(most=3)
    for moment, agent in enumerate(["a", "b", "c", "a", "d"]):
        attempt(machines, agent, float(moment))
    assert sorted(key.agent for key in machines.snapshot()) == ["a", "c", "d"]


def test_an_open_one_outlives_closed_ones_and_a_held_one_outlives_all():
    machines = breakers(most=3, consecutive=1)
    machines.hold(BreakerKey("held"), 0.0, who="ann", why="x")
    attempt(machines, "open", 0.0, KeyError("x"))
    for moment in range(10):
        attempt(machines, f"other{moment}", 1.0 + moment)
    assert states(machines) == {
        BreakerKey("held"): HELD,
        BreakerKey("open"): OPEN,
        BreakerKey("other9"): CLOSED,
    }


def test_without_room_for_another_dependency_the_agent_is_blamed():
    machines = breakers(most=2, consecutive=1)
    early = machines.acquire("order_agent", 0.0)
    attempt(machines, "order_agent", 0.0, HostDownError("a"))
    moved = machines.report(early, 0.0, error=HostDownError("b"))
    assert [m.key for m in moved] == [BreakerKey("order_agent")]
    assert len(machines) == 2


@pytest.mark.parametrize("hosts", [50])
def test_failing_names_from_outside_never_exceed_the_bound(hosts):
    machines = breakers(most=10, consecutive=3)
    for number in range(hosts):
        passage = machines.acquire("order_agent", float(number))
        machines.report(passage, float(number), error=HostDownError(str(number)))
        assert len(machines) <= 10


def test_time_alone_moves_them():
    machines = breakers(consecutive=1)
    attempt(machines, "order_agent", 0.0, KeyError("x"))
    moved = machines.advance(1.0)
    assert [(m.key.agent, m.transition.new) for m in moved] == [("order_agent", HALF_OPEN)]
    assert machines.snapshot()[BreakerKey("order_agent")].degraded


def test_a_passage_given_back_lets_the_next_probe_pass():
    machines = breakers(consecutive=1)
    attempt(machines, "order_agent", 0.0, KeyError("x"))
    probe = machines.acquire("order_agent", 1.0)
    assert not machines.acquire("order_agent", 1.0).granted
    assert machines.abandon(probe, 1.0) == ()
    assert machines.acquire("order_agent", 1.0).granted
