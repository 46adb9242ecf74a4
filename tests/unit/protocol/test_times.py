from datetime import UTC, datetime, timedelta, timezone

import pytest

from amqp_agents.protocol.times import epoch_ms, iso, utc_ms, utc_now

MOMENT = datetime(2026, 7, 13, 4, 0, 0, 123_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "written",
    [
        "2026-07-13T04:00:00.123Z",
        "2026-07-13t04:00:00.123z",
        " 2026-07-13 04:00:00.123 ",
        "2026-07-13T04:00:00.123999",
        "2026-07-13T04:00:00.123456789Z",
        "2026-07-13T12:00:00.123+08:00",
        "2026-07-13T12:00:00.123+0800",
        "2026-07-12T22:30:00.123-05:30",
        1783915200.123,
        1783915200123,
        1783915200123.9,
        datetime(2026, 7, 13, 4, 0, 0, 123_999),
        datetime(2026, 7, 13, 12, 0, 0, 123_000, tzinfo=timezone(timedelta(hours=8))),
    ],
)
def test_one_moment_is_read_in_many_spellings(written: object) -> None:
    assert utc_ms(written) == MOMENT
    assert utc_ms(written).tzinfo is UTC


@pytest.mark.parametrize(
    "written",
    [
        "",
        "soon",
        "2026-06-24T10:21:0008:00",
        "0001-01-01T00:00:00+12:00",
        "9999-12-31T23:59:59-12:00",
        None,
        True,
        [],
        float("nan"),
        float("inf"),
        10**400,
    ],
)
def test_anything_else_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="expected a moment"):
        utc_ms(written)


def test_moments_before_the_epoch_keep_their_order() -> None:
    assert epoch_ms(utc_ms(-1.5)) == -1500


def test_a_moment_is_written_with_three_digits_and_a_z() -> None:
    assert iso(MOMENT) == "2026-07-13T04:00:00.123Z"
    assert utc_ms(iso(utc_now())) <= utc_now()
