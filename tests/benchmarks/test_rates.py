"""The benchmark runs; what it prints is for people, and nothing about speed is asserted."""

import pytest

from tests.benchmarks.__main__ import rounds

pytestmark = [pytest.mark.rabbitmq, pytest.mark.benchmark]


async def test_the_benchmark_measures_both_sides_in_one_run(vhost_url: str) -> None:
    rates = await rounds(vhost_url, 100, 1)

    assert {(rate.what, rate.by) for rate in rates} == {
        (what, by)
        for what in ("publish", "consume", "request")
        for by in ("aio-pika", "amqp_agents")
    }
    assert all(rate.per_second > 0 and rate.cpu_us > 0 for rate in rates)
