"""One idempotency key with another payload is a conflict, never a duplicate."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from amqp_agents import agent
from tests.cases.stage import Done, Place, Stage, Work, body_of, message, on_stage, until

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xfail(strict=True, reason="needs: idempotency ledger"),
]

RUNS: list[int] = []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    @agent("work", concurrency=1)
    async def work(given: Work) -> Done:
        RUNS.append(given.n)
        return Done(n=given.n)

    async with on_stage(shared_place, work) as stage:
        yield stage


async def settled_all(stage: Stage, count: int) -> list[str]:
    await until(lambda: len(stage.journal.entries) >= count, "settled")
    return [entry.what for entry in stage.journal.entries[-count:]]


@pytest.mark.parametrize("key", ["k1", "k2"])
async def test_the_same_again_is_a_duplicate_and_not_run(stage: Stage, key: str) -> None:
    before = len(RUNS)
    for _ in range(2):
        await stage.caller.publish(message("work", 1, idempotency_key=key, task_id="t"))
    told = await settled_all(stage, 2)
    assert told == ["handled", "duplicate"]
    assert len(RUNS) == before + 1


async def test_another_payload_is_a_conflict_and_not_run(stage: Stage) -> None:
    before = len(RUNS)
    for n in (1, 2):
        await stage.caller.publish(message("work", n, idempotency_key="k3", task_id="t"))
    assert await settled_all(stage, 2) == ["handled", "conflict"]
    assert RUNS[before:] == [1]


async def test_another_spelling_of_the_same_payload_is_a_duplicate(stage: Stage) -> None:
    before = len(RUNS)
    body, _ = body_of("work", 1, idempotency_key="k4", task_id="t")
    data = json.loads(body)
    await stage.put("work", body)
    respelled = dict(reversed(data.items())) | {"message_id": "another"}
    await stage.put("work", json.dumps(respelled, indent=3).encode())
    assert await settled_all(stage, 2) == ["handled", "duplicate"]
    assert len(RUNS) == before + 1


async def test_a_duplicate_request_is_answered_with_the_stored_result(stage: Stage) -> None:
    before = len(RUNS)
    for _ in range(2):
        sent = message("work", 5, idempotency_key="k5", message_type="request", ttl=30)
        answer = await stage.caller.exchange(sent, timeout_seconds=5)
        assert answer.payload == {"n": 5}
    assert len(RUNS) == before + 1
