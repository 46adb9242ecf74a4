"""The client's side of a connection is gone, the broker's lives on: all is back at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from amqp_agents import AgentApp, Client, Settings, agent
from tests.cases.stage import Done, Place, Work, until
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq

BACK_SECONDS = 2.0


class Seen:
    handled = 0


@asynccontextmanager
async def behind(
    place: Place, proxy: Proxy, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    """One app, its agent and its caller, with a heartbeat that helps nobody."""
    monkeypatch.setenv("AMQP_AGENTS_HEARTBEAT_SECONDS", "600")

    @agent("work", concurrency=1)
    async def work(given: Work) -> Done:
        seen.handled += 1
        return Done(n=given.n)

    async with AgentApp([work]).test(proxy.url(place.url)) as client:
        yield client


def acked(client: Client) -> float:
    registry = client.telemetry.metrics.registry
    labels = {"agent": "work", "outcome": "handled"}
    return registry.get_sample_value("amqp_agents_deliveries_total", labels) or 0.0


@pytest.mark.parametrize("times", [1, 3])
async def test_requests_work_at_once_after_a_half_open_connection(
    place: Place, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    seen = Seen()
    async with (
        Proxy(place.port) as proxy,
        behind(place, proxy, seen, monkeypatch) as client,
    ):
        assert await client.request("work", {"n": 1}, timeout_seconds=5) == {"n": 1}
        for n in range(times):
            await until(lambda: acked(client) == seen.handled, "all acknowledged")
            made = proxy.counters.connections
            proxy.half_open()
            began = time.monotonic()
            await until(lambda made=made: proxy.counters.connections >= made + 2, "again", 3)  # type: ignore[misc]
            answer = await client.request("work", {"n": n}, timeout_seconds=5)
            assert answer == {"n": n}
            assert time.monotonic() - began < BACK_SECONDS
        # The broker still holds the old connections; nobody's answers go there.
        answers = await asyncio.gather(
            *(client.request("work", {"n": n}, timeout_seconds=5) for n in range(20))
        )
        assert answers == [{"n": n} for n in range(20)]
        handled = seen.handled
        # When the old connections die at last, nothing else changes.
        made = proxy.counters.connections
        for link in list(proxy._links):
            if link.broken and link.broker is not None:
                link.broker.reset()
        await until(lambda: not [e for e in proxy._links if e.broken], "the old ones gone", 5)
        assert await client.request("work", {"n": 7}, timeout_seconds=5) == {"n": 7}
        assert proxy.counters.connections == made
        assert seen.handled == handled + 1
        proxy.heal()


@pytest.mark.parametrize("fault", ["reset", "cut"])
async def test_requests_work_at_once_after_any_other_loss(
    place: Place, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with (
        Proxy(place.port) as proxy,
        behind(place, proxy, Seen(), monkeypatch) as client,
    ):
        getattr(proxy, fault)()
        began = time.monotonic()
        assert await client.request("work", {"n": 3}, timeout_seconds=5) == {"n": 3}
        assert time.monotonic() - began < BACK_SECONDS


def test_the_default_heartbeat_is_short_enough_to_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMQP_AGENTS_HEARTBEAT_SECONDS", raising=False)
    assert Settings().heartbeat_seconds <= 10
