"""Print the rates: `python -m tests.benchmarks [--count N] [--rounds N]`."""

import argparse
import asyncio
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.benchmarks.rates import Rate, medians, ours, raw
from tests.nodes.choose import obtain_broker


def main() -> None:
    """Measure on a RabbitMQ of our own, or the one in AMQP_AGENTS_TEST_URL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3_000, help="messages per measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    options = parser.parse_args()
    endpoint = obtain_broker()
    vhost = endpoint.create_vhost()
    try:
        url = endpoint.url_for(vhost)
        rates = asyncio.run(rounds(url, options.count, options.rounds))
    finally:
        endpoint.delete_vhost(vhost)
        endpoint.stop()
    Console().print(table(rates, count=options.count, rounds=options.rounds))


async def rounds(url: str, count: int, times: int) -> list[Rate]:
    """Return the medians of some rounds, ours and raw in turn."""
    measured = [[*await raw(url, count), *await ours(url, count)] for _ in range(times)]
    return medians(measured)


def table(rates: Sequence[Rate], *, count: int, rounds: int) -> Table:
    """Draw what was measured."""
    drawn = Table(title=f"medians of {rounds} rounds of {count} messages, 1 KB, quorum queue")
    for column in ("what", "by", "messages/s", "CPU µs/message"):
        drawn.add_column(column, justify="left" if column in ("what", "by") else "right")
    for rate in sorted(rates, key=lambda rate: rate.what):
        drawn.add_row(rate.what, rate.by, f"{rate.per_second:,.0f}", f"{rate.cpu_us:,.0f}")
    return drawn


if __name__ == "__main__":
    main()
