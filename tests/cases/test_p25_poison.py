"""A message that kills whoever takes it ends in the dead-letter queue; its neighbours do not."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import pytest

from amqp_agents import Client, Outgoing
from amqp_agents.lifecycle import MAX_DELIVERIES
from amqp_agents.topology.names import dead_letter_queue, inbox
from tests.cases.command import Process, environment
from tests.cases.stage import Place, until
from tests.cases.test_p06_sigterm import caller
from tests.cases.workers import KILLS, Job

pytestmark = pytest.mark.rabbitmq

GOOD = range(1, 21)


def worker(place: Place, concurrency: int) -> Process:
    arguments = ("-m", "amqp_agents", "run", "tests.cases.workers:app")
    env = environment(place, CONCURRENCY=str(concurrency))
    return Process(*arguments, environment=env)


async def dead(client: Client) -> list[object]:
    browser = await client.broker.browse(dead_letter_queue("fragile"))
    found: list[object] = []
    while (lease := await browser.get()) is not None:
        found.append(lease.delivery)
    await browser.close()
    return found


async def killed_until_given_up(
    place: Place, concurrency: int, jobs: Sequence[Job]
) -> tuple[Counter[str], list[object]]:
    """A supervisor restarts the worker at once, until nothing is left in the inbox."""
    told: Counter[str] = Counter()
    async with caller(place) as client:
        for job in jobs:
            await client.publish(Outgoing(job, to="fragile", ttl=3600))

        async def done() -> bool:
            depth = await client.broker.depth(inbox("fragile"))
            return depth == 0 and len(await dead(client)) >= 1

        for _ in range(3 * MAX_DELIVERIES):
            async with worker(place, concurrency) as process:
                ended = asyncio.create_task(process.ended(20))
                waiting = asyncio.create_task(until(done, "nothing left", 20))
                await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
                finished = not ended.done()
                if finished:
                    process.signal()
                await ended
                waiting.cancel()
                await asyncio.wait({waiting})
                told.update(process.lines)
            if finished:
                break
        return told, await dead(client)


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_process_killer_is_given_up_and_its_neighbours_are_handled(
    place: Place, concurrency: int
) -> None:
    jobs = [Job(n=0, kill="exit"), *(Job(n=n) for n in GOOD)]
    told, letters = await killed_until_given_up(place, concurrency, jobs)
    assert 1 < told["began 0"] <= MAX_DELIVERIES + 1
    assert [told[f"did {n}"] for n in GOOD] == [1] * len(GOOD)
    (letter,) = letters
    headers = letter.properties.headers  # type: ignore[attr-defined]
    assert "times without settlement" in headers["aa-fault-message"]


async def test_neighbours_that_run_beside_a_process_killer_are_not_counted_down_with_it(
    place: Place,
) -> None:
    """The first one opens the worker, so that five run at once when the third kills them."""
    jobs = [Job(n=n, seconds=0.0 if n < 2 else 0.2) for n in GOOD]
    jobs.insert(2, Job(n=0, kill="exit"))
    told, letters = await killed_until_given_up(place, 5, jobs)
    assert 1 < told["began 0"] <= MAX_DELIVERIES + 1
    # Whoever ran beside it was begun once more; afterwards it killed alone.
    assert all(told[f"began {n}"] <= 2 for n in GOOD), told
    assert all(told[f"did {n}"] >= 1 for n in GOOD), told
    (letter,) = letters
    assert json.loads(letter.body)["payload"]["n"] == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("kill", KILLS)
async def test_what_no_handler_catches_stops_neither_worker_nor_queue(
    place: Place, kill: str
) -> None:
    async with caller(place) as client, worker(place, 2) as process:
        await process.says("ready")
        await client.publish(Outgoing(Job(n=0, kill=kill), to="fragile"))
        for n in GOOD:
            await client.publish(Outgoing(Job(n=n), to="fragile"))
        await process.says("did", len(GOOD), 10)

        async def given_up() -> bool:
            return len(await dead(client)) == 1

        await until(given_up, "given up")
        assert process.count("began 0") == 2  # as many attempts as it may have
        assert await client.broker.depth(inbox("fragile")) == 0
        process.signal()
        assert await process.ended(5) == 0
