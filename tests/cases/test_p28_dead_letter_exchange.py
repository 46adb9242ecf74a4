"""A dead-letter exchange that exists by name only is found at the start, and loses nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqp_agents import RabbitMQBroker, RetryPolicy, agent
from amqp_agents.errors import TopologyConflictError, TopologyMissingError
from amqp_agents.lifecycle import ensure_topology
from amqp_agents.topology import names
from tests.cases.checks import canary, total
from tests.cases.command import command
from tests.cases.stage import Place, Stage, Work, body_of, on_stage, until
from tests.cases.workers import app as worker_app
from tests.nodes.rawpub import properties, short

pytestmark = pytest.mark.rabbitmq

TARGET = "tests.cases.workers:app"
DEAD = names.dead_letter_queue("steady")


async def damaged(place: Place, *removed: str, put: dict[str, Any] | None = None) -> None:
    """Declare everything, then take something away as another deploy would."""
    broker = RabbitMQBroker(place.settings(), name="admin")
    await broker.connect(timeout_seconds=10)
    await broker.apply(worker_app.topology())
    await broker.close()
    for path in removed:
        await place.api("DELETE", path)
    if put is not None:
        await place.api("PUT", f"queues/{{}}/{names.inbox('steady')}", put)


async def started(place: Place) -> None:
    """The check a worker makes at its start."""
    broker = RabbitMQBroker(place.settings(), name="worker")
    await broker.connect(timeout_seconds=10)
    try:
        await ensure_topology(broker, worker_app.topology(), declare=False)
    finally:
        await broker.close()


MISSING = {
    "the exchange": ([f"exchanges/{{}}/{names.DLX}"], f"exchange {names.DLX}"),
    "the binding": ([f"bindings/{{}}/e/{names.DLX}/q/{DEAD}/steady"], DEAD),
    "the queue": ([f"queues/{{}}/{DEAD}"], DEAD),
    "the inbox": ([f"queues/{{}}/{names.inbox('steady')}"], names.inbox("steady")),
    "a delay level": ([f"queues/{{}}/{names.delay_level(3)}"], names.delay_level(3)),
    "a delay exchange": ([f"exchanges/{{}}/{names.DELAY_EXIT}"], names.DELAY_EXIT),
    "the lost ones": ([f"queues/{{}}/{names.LOST}"], names.LOST),
}


@pytest.mark.parametrize("what", MISSING)
async def test_what_is_missing_is_named_by_the_check_and_at_the_start(
    place: Place, what: str
) -> None:
    removed, name = MISSING[what]
    await damaged(place, *removed)
    with pytest.raises(TopologyMissingError) as refused:
        await started(place)
    assert name in str(refused.value)
    assert "topology apply" in str(refused.value)
    await damaged(place)  # declares again what is missing
    await started(place)


async def test_the_command_names_all_that_is_missing_and_makes_it(place: Place) -> None:
    # Bindings go first: they are gone with what they bind.
    paths = sorted(removed[0] for removed, _ in MISSING.values())
    await damaged(place, *paths)
    code, printed = await command(place, "topology", "check", TARGET)
    assert code == 2
    for _, name in MISSING.values():
        assert name in printed
    code, printed = await command(place, "topology", "apply", TARGET)
    assert code == 0, printed
    await started(place)


async def test_a_missing_exchange_is_an_error_of_run_naming_the_mend(place: Place) -> None:
    await damaged(place, f"exchanges/{{}}/{names.DLX}")
    code, printed = await command(place, "run", TARGET)
    assert code == 1
    assert names.DLX in printed
    assert "topology apply" in printed


PLAIN = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
OTHER_KEY = {
    "x-dead-letter-exchange": names.DLX,
    "x-dead-letter-routing-key": "somebody-else",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
FOREIGN = {
    "without any dead-letter exchange": PLAIN,
    "of another type": {"durable": True, "arguments": {"x-queue-type": "classic"}},
    "to another exchange": {
        "durable": True,
        "arguments": {"x-queue-type": "quorum", "x-dead-letter-exchange": "elsewhere"},
    },
    "with another key": {"durable": True, "arguments": {"x-queue-type": "quorum"} | OTHER_KEY},
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_an_inbox_somebody_else_made_is_a_conflict_naming_the_argument(
    place: Place, what: str
) -> None:
    inbox = names.inbox("steady")
    await damaged(place, f"queues/{{}}/{inbox}", put=FOREIGN[what])
    with pytest.raises(TopologyConflictError) as refused:
        await started(place)
    assert inbox in str(refused.value)
    assert "x-queue-type" in str(refused.value) or "x-dead-letter" in str(refused.value)
    if what == "without any dead-letter exchange":
        for asked, expected in (("apply", 1), ("check", 2)):
            code, printed = await command(place, "topology", asked, TARGET)
            assert code == expected
            assert inbox in printed
            assert "x-dead-letter-exchange" in printed


@asynccontextmanager
async def two_failing(place: Place) -> AsyncIterator[Stage]:
    @agent("one", concurrency=1, retry=RetryPolicy(max_attempts=1))
    async def one(given: Work) -> None:
        if given.n:
            raise ValueError("one fails")

    @agent("two", concurrency=1, retry=RetryPolicy(max_attempts=1))
    async def two(given: Work) -> None:
        if given.n:
            raise ValueError("two fails")

    async with on_stage(place, one, two) as stage:
        yield stage


async def test_each_agents_dead_letters_rest_in_its_own_queue(place: Place) -> None:
    async with two_failing(place) as stage:
        sent = {name: [body_of(name, 1)[0] for _ in range(5)] for name in ("one", "two")}
        for name, bodies in sent.items():
            for body in bodies:
                await stage.put(name, body)
        await until(lambda: total_dead(stage) == 10, "all given up")
        for name, bodies in sent.items():
            found = sorted(each.body for each in await stage.dead_letters(name))
            assert found == sorted(bodies)
            await canary(stage, name)
        assert await stage.depth(names.LOST) == 0


def total_dead(stage: Stage) -> float:
    return sum(total(stage, name, "dead_letters_total") for name in ("one", "two"))


@pytest.mark.parametrize("by", ["reject", "expiry"])
async def test_what_the_broker_itself_gives_up_rests_there_too(place: Place, by: str) -> None:
    async with two_failing(place) as stage:
        await stage.stop()
        body = body_of("one", 1)[0]
        if by == "expiry":
            await stage.put("one", body, properties(expiration=short(b"1")))
        else:
            await stage.put("one", body)
            browser = await stage.caller.broker.browse("agent.one")
            lease = await browser.get()
            assert lease is not None
            assert await lease.reject()
            await browser.close()

        async def resting() -> bool:
            return [each.body for each in await stage.dead_letters("one")] == [body]

        await until(resting, "a dead letter")
        assert await stage.dead_letters("two") == []


@pytest.mark.parametrize("what", ["the exchange", "the binding", "the queue"])
async def test_a_failing_message_is_kept_whatever_is_missing(place: Place, what: str) -> None:
    async with two_failing(place) as stage:
        dead = names.dead_letter_queue("one")
        paths = {
            "the exchange": f"exchanges/{{}}/{names.DLX}",
            "the binding": f"bindings/{{}}/e/{names.DLX}/q/{dead}/one",
            "the queue": f"queues/{{}}/{dead}",
        }
        await stage.place.api("DELETE", paths[what])
        body, _ = body_of("one", 1)
        await stage.put("one", body)
        if what == "the exchange":
            await until(lambda: total(stage, "one", "unsettled_total") >= 1, "told", 40)
            await stage.stop(0.0)
            assert [each.body for each in await stage.waiting("agent.one")] == [body]
        else:

            async def lost() -> bool:
                return [each.body for each in await stage.waiting(names.LOST)] == [body]

            await until(lost, "among the lost")
            await canary(stage, "one")
