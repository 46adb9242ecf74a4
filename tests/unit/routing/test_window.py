from hypothesis import given
from hypothesis import strategies as st

from amqp_agents.routing.window import BUCKETS, Window

STEPS = st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=60)


@given(steps=STEPS)
def test_it_counts_all_of_the_last_nine_tenths_and_nothing_older_than_the_whole(steps):
    window, now, log = Window(60.0), 0.0, []
    for pause, failed in steps:
        now += pause
        window.add(now, failed=failed)
        log.append((now, failed))
    attempts, failures = window.counts(now)
    surely = [failed for at, failed in log if at > now - 54 + 1e-6]
    perhaps = [failed for at, failed in log if at > now - 60 - 1e-6]
    assert len(surely) <= attempts <= len(perhaps)
    assert sum(surely) <= failures <= sum(perhaps)


def test_its_size_does_not_depend_on_traffic():
    window = Window(60.0)
    for moment in range(10_000):
        window.add(moment / 10, failed=True)
    assert len(window._buckets) <= BUCKETS
