import pytest

from amqp_agents.protocol import AgentMessage, remaining_seconds

SENT = 1_783_915_200


def left(now: float, *, clock_ms: int | None = None, **fields: object) -> float | None:
    message = AgentMessage(sender="a", type="event", timestamp=SENT, **fields)
    return remaining_seconds(message, clock_ms=clock_ms, now=now)


@pytest.mark.parametrize(
    ("ttl", "deadline_ms", "expected"),
    [(300, None, 290), (300, 30_000, 20), (15, 30_000, 5), (None, 30_000, 20), (0, None, 0)],
)
def test_the_shorter_of_ttl_and_deadline_counts(
    ttl: int | None, deadline_ms: int | None, expected: float
) -> None:
    assert left(SENT + 10, ttl=ttl, deadline_ms=deadline_ms) == expected


def test_a_message_without_ttl_and_deadline_never_expires() -> None:
    assert left(SENT + 10**9, ttl=None) is None
    assert left(SENT, clock_ms=1, ttl=None) is None


def test_an_expired_message_has_nothing_left_rather_than_less() -> None:
    assert left(SENT + 300, ttl=300) == 0
    assert left(SENT + 10**9, ttl=300) == 0


def test_the_last_millisecond_still_counts() -> None:
    assert left(SENT + 299.9995, ttl=300) == 0.001


def test_a_replayed_message_is_as_old_as_its_replay() -> None:
    assert left(SENT + 10_000, ttl=300, clock_ms=(SENT + 9_990) * 1000) == 290
    assert left(SENT + 10, ttl=300, clock_ms=0) == 290


def test_a_scheduled_message_has_not_aged_before_it_is_due() -> None:
    assert left(SENT + 10, ttl=300, clock_ms=(SENT + 3600) * 1000) == 300


def test_a_sender_whose_clock_runs_ahead_gains_only_what_it_is_ahead_by() -> None:
    assert left(SENT - 60, ttl=300) == 300
    assert left(SENT + 60, ttl=300) == 240
