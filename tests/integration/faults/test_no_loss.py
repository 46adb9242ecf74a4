"""Connections are killed and the broker restarts under load: nothing confirmed is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from urllib.parse import quote

import pytest

from amqp_agents import AgentError, Outgoing, connect
from amqp_agents.client import Client
from tests.integration.faults.agents import Work
from tests.integration.faults.ledger import Ledger
from tests.integration.faults.worker import Worker
from tests.nodes.management import ManagementError
from tests.nodes.node import Node

pytestmark = [pytest.mark.rabbitmq, pytest.mark.node]

MESSAGES = 2_000
PAUSE_SECONDS = 0.01
RUNNING = 5
GRACE_SECONDS = 10.0


@pytest.fixture
def vhost(node: Node) -> Iterator[str]:
    vhost = node.create_vhost()
    yield vhost
    node.delete_vhost(vhost)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with Ledger() as ledger:
        yield ledger


@pytest.fixture
async def worker(node: Node, vhost: str, ledger: Ledger) -> AsyncIterator[Worker]:
    async with Worker(
        node.url_for(vhost),
        management_url=node.management_url,
        ledger_port=ledger.port,
        grace=GRACE_SECONDS,
    ) as worker:
        yield worker


async def test_connections_killed_and_a_broker_restarted_lose_nothing_confirmed(
    node: Node, vhost: str, ledger: Ledger, worker: Worker
) -> None:
    confirmed: set[str] = set()
    async with connect(node.url_for(vhost), name="sender") as client:
        sending = asyncio.create_task(send_all(client, ledger, confirmed))
        faults: dict[str, Callable[[], Awaitable[object]]] = {
            "kill": lambda: kill_connections(node, vhost),
            "restart": lambda: asyncio.to_thread(node.restart),
        }
        for fault, strike in faults.items():
            before = len(confirmed)
            await while_five_run(client, ledger, fault, strike)
            assert not sending.done(), f"the {fault} was to strike while messages are sent"
            assert before < len(confirmed) < MESSAGES
        await asyncio.wait_for(sending, 120)

    counts = await ledger.until(lambda c: confirmed <= set(c.get("handled", ())))
    handled, finished = counts["handled"], counts["finished"]
    repeated = sum(handled.values()) - len(handled)
    print(
        f"\nsent {MESSAGES}, confirmed {len(confirmed)}, handled {len(handled)}, "
        f"handled again {repeated}, unconfirmed {dict(counts.get('unconfirmed', {}))}"
    )
    assert len(confirmed) >= 1_900
    assert "cancelled" not in counts
    assert len(finished) == 2 * RUNNING
    assert worker.output.count("connection_lost") >= 4, "two links of the worker, two faults"

    began = time.monotonic()
    assert await worker.terminate(GRACE_SECONDS + 5) == 0, worker.output
    assert time.monotonic() - began < GRACE_SECONDS
    assert "cancelled" not in await ledger.counts()


async def send_all(client: Client, ledger: Ledger, confirmed: set[str]) -> None:
    """Send for long enough that both faults fall into it."""
    window = asyncio.Semaphore(200)

    async def send(key: str) -> None:
        async with window:
            try:
                await client.publish(Outgoing(Work(key=key), to="quick", ttl=600))
            except AgentError as error:
                await ledger.tell("unconfirmed", f"{key}:{type(error).__name__}")
            else:
                confirmed.add(key)

    async with asyncio.TaskGroup() as sends:
        for number in range(MESSAGES):
            sends.create_task(send(str(number)))
            await asyncio.sleep(PAUSE_SECONDS)


async def while_five_run(
    client: Client, ledger: Ledger, fault: str, strike: Callable[[], Awaitable[object]]
) -> None:
    """Strike while five handlers run; only then let them end, and wait until they have."""

    def mine(counts: dict[str, Counter[str]], what: str) -> int:
        return sum(1 for key in counts.get(what, ()) if key.startswith(fault))

    for number in range(RUNNING):
        work = Work(key=f"{fault}-{number}", until=f"after the {fault}")
        await client.publish(Outgoing(work, to="slow", ttl=600))
    await ledger.until(lambda counts: mine(counts, "started") == RUNNING)
    await strike()
    assert mine(await ledger.counts(), "finished") == 0
    await ledger.release(f"after the {fault}")
    await ledger.until(lambda counts: mine(counts, "finished") == RUNNING)


async def kill_connections(node: Node, vhost: str) -> None:
    """Force-close every AMQP connection by the management API, the sender's and the worker's."""
    call = node.management.call

    def strike() -> int:
        killed = 0
        for connection in call("GET", f"vhosts/{quote(vhost, safe='')}/connections"):
            try:
                call("DELETE", f"connections/{quote(connection['name'], safe='')}")
                killed += 1
            except ManagementError as error:
                if error.status != 404:  # statistics lag: it was gone already
                    raise
        return killed

    async with asyncio.timeout(20):
        while await asyncio.to_thread(strike) < 4:  # two apps, two links each
            await asyncio.sleep(0.5)
