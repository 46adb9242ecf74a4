"""Metrics of two apps in one process never collide; those of several processes add up."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from amqp_agents import AgentApp, Outgoing, agent
from amqp_agents.observability import Metrics
from tests.cases.command import Process, environment
from tests.cases.stage import Place, Work, message, on_stage, until
from tests.cases.test_p06_sigterm import caller
from tests.cases.workers import Job

pytestmark = pytest.mark.rabbitmq


def series(registry: Any) -> Counter[str]:
    """How often each series is told in one scrape."""
    text = generate_latest(registry).decode()
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[f"{sample.name}{sorted(sample.labels.items())}"] += 1
    return found


def an_agent() -> Any:
    @agent("work")
    async def work(given: Work) -> None: ...

    return work


def test_apps_of_one_process_have_a_registry_each() -> None:
    first, second = AgentApp([an_agent()]), AgentApp([an_agent()])
    first.telemetry.metrics.unsettled.labels("work").inc()
    value = second.telemetry.metrics.registry.get_sample_value(
        "amqp_agents_unsettled_total", {"agent": "work"}
    )
    assert value is None


def test_a_registry_of_ones_own_is_used_alone() -> None:
    registry = CollectorRegistry()
    app = AgentApp([an_agent()], metrics=Metrics(registry))
    assert app.telemetry.metrics.registry is registry
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Metrics(registry)


async def test_two_apps_count_for_themselves_and_again_after_a_restart(place: Place) -> None:
    for _ in range(2):  # built, closed, built again
        async with (
            on_stage(place, an_agent()) as first,
            on_stage(place, an_agent(), start=False) as second,
        ):
            for n in range(5):
                sent = message("work", n)
                await first.caller.publish(sent)
                await until(lambda s=sent: first.journal.count("handled", s.message_id) == 1, "")  # type: ignore[misc]
            handled = {"agent": "work", "outcome": "handled"}
            assert first.counted("deliveries_total", **handled) == 5
            assert second.counted("deliveries_total", **handled) == 0
            told = series(first.app.telemetry.metrics.registry)
            assert set(told.values()) == {1}  # nothing twice
            assert first.counted("handlings", agent="work") == 0


async def scraped(folder: Path) -> dict[str, float]:
    """One scrape of all processes, by a process of its own as Prometheus needs it."""
    code = (
        "from prometheus_client import CollectorRegistry, generate_latest, multiprocess\n"
        "registry = CollectorRegistry()\n"
        "multiprocess.MultiProcessCollector(registry)\n"
        "print(generate_latest(registry).decode())\n"
    )
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    async with Process("-c", code, environment=env) as process:
        assert await process.ended(20) == 0
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(process.output + "\n"):
            for sample in family.samples:
                key = f"{sample.name}{sorted(sample.labels.items())}"
                assert key not in found, f"{key} twice"
                found[key] = sample.value
    return found


@pytest.mark.xfail(strict=True, reason="needs: metrics of several processes")
async def test_several_processes_are_one_scrape_and_the_dead_leave_no_gauge(
    place: Place, tmp_path: Path
) -> None:
    env = environment(place, PROMETHEUS_MULTIPROC_DIR=str(tmp_path))
    arguments = ("-m", "amqp_agents", "run", "tests.cases.workers:app")
    async with (
        caller(place) as client,
        Process(*arguments, environment=env) as first,
        Process(*arguments, environment=env) as second,
    ):
        await asyncio.gather(first.says("ready"), second.says("ready"))
        await asyncio.gather(*(client.request("steady", Job(n=n, seconds=0.5)) for n in range(10)))
        found = await scraped(tmp_path)
        handled = "amqp_agents_deliveries_total[('agent', 'steady'), ('outcome', 'handled')]"
        assert found[handled] == 10
        for n in range(10):
            await client.publish(Outgoing(Job(n=n, seconds=60), to="steady"))
        await asyncio.gather(first.says("began", 5), second.says("began", 5))
        second.signal(signal.SIGKILL)
        await second.ended(5)
        found = await scraped(tmp_path)
        gauges = {k: v for k, v in found.items() if k.startswith("amqp_agents_handlings[")}
        assert gauges == {"amqp_agents_handlings[('agent', 'steady')]": 5}
