"""The topology changed and the queue exists: what differs is named, and nothing else changes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amqp_agents import agent
from tests.cases.checks import RECONNECT_SECONDS, canary
from tests.cases.command import command
from tests.cases.stage import Place, Work, on_stage, until
from tests.cases.workers import app
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq


def written(tmp_path: Path, *names: str) -> str:
    path = tmp_path / "agents.yaml"
    listed = "".join(f"  - name: {name}\n" for name in names)
    path.write_text(f"agents:\n{listed}")
    return str(path)


async def everything(place: Place) -> dict[str, Any]:
    """What exists in the vhost, as far as an apply could change it."""
    found: dict[str, Any] = {}
    for kind in ("queues", "exchanges", "bindings", "policies"):
        listed = await place.api("GET", f"{kind}/{{}}")
        keys = ("name", "arguments", "type", "source", "destination", "routing_key", "definition")
        found[kind] = sorted(str({k: each.get(k) for k in keys}) for each in listed)
    return found


async def replaced(place: Place, queue: str, **arguments: Any) -> None:
    """What another team does behind our back."""
    await place.api("DELETE", f"queues/{{}}/{queue}")
    await place.api("PUT", f"queues/{{}}/{queue}", {"durable": True, "arguments": arguments})


QUORUM = {"x-queue-type": "quorum"}
LEVEL = "agent.delay.v1.5"
DRIFTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "another time to live": (
        LEVEL,
        QUORUM
        | {
            "x-message-ttl": 60_000,
            "x-dead-letter-exchange": "agent.delay.v1.4",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "aa-owner": "amqp_agents",
        },
        ["x-message-ttl", "32000", "60000"],
    ),
    "another type": (LEVEL, {"x-queue-type": "classic"}, ["x-queue-type", "quorum", "classic"]),
    "no arguments": ("agent.one.dlq", {}, ["x-queue-type", "quorum", "classic"]),
    "another dead-letter exchange": (
        "agent.one",
        QUORUM | {"x-dead-letter-exchange": "theirs"},
        ["x-dead-letter-exchange", "agent.dlx", "theirs"],
    ),
}


@pytest.mark.parametrize("what", DRIFTS)
async def test_an_apply_names_what_differs_and_changes_nothing(
    place: Place, tmp_path: Path, what: str
) -> None:
    queue, arguments, words = DRIFTS[what]
    code, printed = await command(place, "topology", "apply", written(tmp_path, "one"))
    assert code == 0, printed
    await replaced(place, queue, **arguments)
    before = await everything(place)
    changed = written(tmp_path, "one", "two")  # there is something to create, too
    code, printed = await command(place, "topology", "apply", changed)
    assert code == 1
    assert queue in printed
    for word in words:
        assert word in printed, (word, printed)
    assert "nothing was changed" in printed
    assert await everything(place) == before
    code, printed = await command(place, "topology", "check", changed)
    assert code == 2
    assert queue in printed
    assert "agent.two" in printed
    assert await everything(place) == before


@pytest.mark.parametrize("declare", [True, False])
async def test_a_worker_never_declares_over_what_differs(
    place: Place, tmp_path: Path, declare: bool
) -> None:
    async with on_stage(place, *app.agents, start=False):
        pass
    await replaced(place, "agent.steady", **QUORUM)
    before = await everything(place)
    options = ["--declare"] if declare else []
    code, printed = await command(place, "run", *options, "tests.cases.workers:app")
    assert code == 1
    assert "agent.steady" in printed
    assert "x-dead-letter-exchange" in printed
    assert await everything(place) == before


@pytest.mark.parametrize("fate", ["replaced", "replaced by a classic queue", "deleted"])
async def test_one_drifted_queue_holds_back_no_other(place: Place, fate: str) -> None:
    """D is another queue when the connection comes back; E and F are consumed again at once."""
    agents = []
    for name in ("d", "e", "f"):

        @agent(name, concurrency=1)
        async def handler(given: Work) -> None: ...

        agents.append(handler)
    async with Proxy(place.port) as proxy:
        url = proxy.url(place.url)
        async with on_stage(place, *agents, worker_url=url) as stage:
            for name in ("d", "e", "f"):
                await canary(stage, name)
            proxy.refuse()
            proxy.reset()
            if fate == "deleted":
                await place.api("DELETE", "queues/{}/agent.d")
            elif fate == "replaced":
                await replaced(place, "agent.d", **QUORUM, **{"x-max-length": 5})
            else:
                await replaced(place, "agent.d", **{"x-queue-type": "classic"})
            before = await everything(place)
            proxy.heal()
            await asyncio.gather(
                canary(stage, "e", RECONNECT_SECONDS), canary(stage, "f", RECONNECT_SECONDS)
            )
            assert await everything(place) == before  # nothing was declared again
            if fate == "deleted":
                await until(
                    lambda: any(
                        "consumer_failing queue=agent.d" in r.getMessage()
                        for r in stage.told.records
                    ),
                    "told",
                )


@pytest.mark.xfail(strict=True, reason="needs: replacement plan")
async def test_the_way_to_change_a_live_queue_is_a_command(place: Place, tmp_path: Path) -> None:
    code, _ = await command(place, "topology", "apply", written(tmp_path, "one"))
    assert code == 0
    await replaced(place, "agent.one", **{"x-queue-type": "classic"})
    await place.api("GET", "queues/{}/agent.one")
    code, printed = await command(place, "topology", "migrate", written(tmp_path, "one"))
    assert code == 0, printed
    assert "agent.one@2" in printed
