"""The client's side of a connection is gone, the broker's lives on: all is back at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from amqp_agents import AgentApp, Client, Settings, agent, connect
from tests.cases.stage import Done, Place, Work, on_stage, until
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


@pytest.mark.parametrize("times", [1, 3])
async def test_a_caller_is_answered_at_once_after_a_half_open_connection(
    place: Place, times: int
) -> None:
    """The broker holds the caller's old connections; no answer goes there."""

    @agent("work", concurrency=1)
    async def work(given: Work) -> Done:
        return Done(n=given.n)

    async with Proxy(place.port) as proxy, on_stage(place, work):
        settings = place.settings(url=proxy.url(place.url), heartbeat_seconds=600)
        async with connect(settings=settings, name="half-open") as client:
            assert await client.request("work", {"n": 1}, timeout_seconds=5) == {"n": 1}
            for n in range(times):
                made = proxy.counters.connections
                proxy.half_open()
                began = time.monotonic()
                await until(lambda made=made: proxy.counters.connections >= made + 2, "again", 3)  # type: ignore[misc]
                assert await client.request("work", {"n": n}, timeout_seconds=5) == {"n": n}
                assert time.monotonic() - began < BACK_SECONDS
            answers = await asyncio.gather(
                *(client.request("work", {"n": n}, timeout_seconds=5) for n in range(20))
            )
            assert answers == [{"n": n} for n in range(20)]
            # When the old connections die at last, nothing else changes.
            made = proxy.counters.connections
            for link in list(proxy._links):
                if link.broken and link.broker is not None:
                    link.broker.reset()
            await until(lambda: not [e for e in proxy._links if e.broken], "the old gone", 5)
            assert await client.request("work", {"n": 7}, timeout_seconds=5) == {"n": 7}
            assert proxy.counters.connections == made
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
