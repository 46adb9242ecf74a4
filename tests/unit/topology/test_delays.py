import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_agents.errors import ConfigurationError
from amqp_agents.topology.delays import (
    HEADERS,
    LEVELS,
    MAX_DELAY_SECONDS,
    delay_headers,
    whole_seconds,
    without_delay_headers,
)

SECONDS = st.integers(min_value=0, max_value=MAX_DELAY_SECONDS)


def seconds_of(headers: dict[str, bool]) -> int:
    return sum(2 ** int(name.removeprefix("d")) for name in headers)


@given(SECONDS)
def test_the_levels_a_message_passes_hold_it_for_exactly_the_delay(seconds: int) -> None:
    headers = delay_headers(seconds)
    assert seconds_of(headers) == seconds
    assert all(value is True for value in headers.values())
    assert headers.keys() <= HEADERS


@given(SECONDS, SECONDS)
def test_different_delays_have_different_headers(one: int, other: int) -> None:
    assert (delay_headers(one) == delay_headers(other)) == (one == other)


def test_the_longest_delay_sets_every_level() -> None:
    assert len(delay_headers(MAX_DELAY_SECONDS)) == LEVELS
    assert MAX_DELAY_SECONDS >= 36 * 3600


@pytest.mark.parametrize("seconds", [-1, MAX_DELAY_SECONDS + 1, 1.5, True, "1"])
def test_what_is_not_a_delay_in_range_is_refused(seconds: object) -> None:
    with pytest.raises(ConfigurationError, match="delay"):
        delay_headers(seconds)  # type: ignore[arg-type]


@given(st.floats(min_value=0, max_value=MAX_DELAY_SECONDS))
def test_a_delay_is_rounded_up_by_less_than_a_second(delay_seconds: float) -> None:
    whole = whole_seconds(delay_seconds)
    assert whole - 1 < delay_seconds <= whole


@given(st.floats(max_value=0))
def test_a_time_that_has_passed_is_no_delay(delay_seconds: float) -> None:
    assert whole_seconds(delay_seconds) == 0


@pytest.mark.parametrize("delay_seconds", [math.nan, math.inf, MAX_DELAY_SECONDS + 0.5, 1e300])
def test_a_delay_the_chain_cannot_hold_is_refused(delay_seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="longest is 131071 s"):
        whole_seconds(delay_seconds)


@given(SECONDS, st.dictionaries(st.text(max_size=4), st.integers(), max_size=5))
def test_headers_of_a_delay_that_is_over_are_taken_off(
    seconds: int, others: dict[str, int]
) -> None:
    kept = {name: value for name, value in others.items() if name not in HEADERS}
    assert without_delay_headers({**others, **delay_headers(seconds)}) == kept
