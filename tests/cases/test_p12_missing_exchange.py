"""A publish to what is not there fails alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from amqp_agents import Outgoing, UnroutableMessageError, agent
from amqp_agents.brokers.base import Publishing
from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.names import DIRECT, EVENTS, inbox
from tests.cases.stage import Place, Stage, Work, body_of, message, on_stage

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    @agent("work")
    async def work(given: Work) -> None: ...

    async with on_stage(shared_place, work, start=False) as stage:
        yield stage


async def amid_ten(stage: Stage, odd: Any) -> Any:
    """Ten good ones around an odd one, all at once: each good one is stored once."""
    await stage.place.api("DELETE", f"queues/{{}}/{inbox('work')}/contents")
    good = [message("work", n) for n in range(10)]
    sending = [stage.caller.publish(each) for each in good]
    answers = await asyncio.gather(*sending[:5], odd, *sending[5:], return_exceptions=True)
    answer = answers.pop(5)
    assert answers == [None] * 10
    stored = [d.properties.headers["aa-message-id"] for d in await stage.waiting(inbox("work"))]
    assert sorted(stored) == sorted(each.message_id for each in good)
    await asyncio.wait_for(stage.caller.publish(message("work")), 1)
    return answer


async def amid_closing(stage: Stage, odd: Any) -> Any:
    """The broker closes a channel for it: good ones under way there are sent again."""
    good = [message("work", n) for n in range(10)]
    sending = [stage.caller.publish(each) for each in good]
    answers = await asyncio.gather(*sending[:5], odd, *sending[5:], return_exceptions=True)
    answer = answers.pop(5)
    assert answers == [None] * 10
    stored = [d.properties.headers["aa-message-id"] for d in await stage.waiting(inbox("work"))]
    assert {each.message_id for each in good} <= set(stored)
    return answer


def raw(stage: Stage, exchange: str, key: str = "work", **options: Any) -> Any:
    publishing = Publishing(exchange, key, body_of("work")[0], Properties(), **options)
    return stage.caller.broker.publish(publishing, timeout_seconds=5)


@pytest.mark.parametrize("name", ["nope", "agent.nope", "amq.nope", "Agent.Direct", "no pe"])
@pytest.mark.parametrize("mandatory", [True, False])
async def test_a_missing_exchange_fails_that_publish_only(
    stage: Stage, name: str, mandatory: bool
) -> None:
    answer = await amid_ten(stage, raw(stage, name, mandatory=mandatory))
    assert isinstance(answer, UnroutableMessageError)
    assert f"exchange not found: {name}" in str(answer)


async def test_many_missing_exchanges_at_once_fail_alone(stage: Stage) -> None:
    async def all_of_them() -> list[Any]:
        odd = [raw(stage, f"nope-{n % 3}") for n in range(20)]
        return await asyncio.gather(*odd, return_exceptions=True)

    answers = await amid_ten(stage, all_of_them())
    assert {type(answer) for answer in answers} == {UnroutableMessageError}
    assert all("exchange not found: nope-" in str(answer) for answer in answers)


async def test_an_exchange_deleted_behind_our_back_fails_alone(stage: Stage) -> None:
    """It was there at the last publish, so nobody asks again before this one."""
    for _ in range(2):
        await stage.place.api("PUT", "exchanges/{}/passing", {"type": "fanout", "durable": True})
        await raw(stage, "passing", mandatory=False)
        await stage.place.api("DELETE", "exchanges/{}/passing")
        answer = await amid_closing(stage, raw(stage, "passing", mandatory=False))
        assert isinstance(answer, UnroutableMessageError)
        assert "exchange not found: passing" in str(answer)


async def test_an_agent_nobody_declared_fails_alone_and_by_name(stage: Stage) -> None:
    answer = await amid_ten(stage, stage.caller.publish(Outgoing(Work(), to="nobody")))
    assert isinstance(answer, UnroutableMessageError)
    assert "'nobody'" in str(answer)
    assert "topology apply" in str(answer)


async def test_a_key_nobody_bound_fails_alone(stage: Stage) -> None:
    answer = await amid_ten(stage, raw(stage, DIRECT, "unbound"))
    assert isinstance(answer, UnroutableMessageError)
    answer = await amid_ten(stage, raw(stage, "", "no.such.queue"))
    assert isinstance(answer, UnroutableMessageError)


async def test_an_event_nobody_listens_to_is_no_error(stage: Stage) -> None:
    assert await amid_ten(stage, raw(stage, EVENTS, "event.unheard", mandatory=False)) is None


@pytest.mark.parametrize(
    "what",
    [
        {"exchange": "x" * 256},
        {"exchange": "x" * 128},
        {"exchange": "é"},
        {"exchange": "line\n"},
        {"exchange": "\ud800"},
        {"routing_key": "k" * 256},
        {"routing_key": "ü" * 128},
        {"routing_key": "\ud800"},
    ],
)
async def test_a_name_that_cannot_be_sent_fails_alone(stage: Stage, what: dict[str, str]) -> None:
    given = {"exchange": DIRECT, "routing_key": "work"} | what
    publishing = Publishing(body=b"{}", properties=Properties(), **given)
    answer = await amid_ten(stage, stage.caller.broker.publish(publishing, timeout_seconds=5))
    assert isinstance(answer, InvalidPayloadError)


async def test_an_internal_exchange_fails_alone(stage: Stage) -> None:
    inside = {"type": "fanout", "durable": True, "internal": True}
    await stage.place.api("PUT", "exchanges/{}/inside", inside)
    answer = await amid_closing(stage, raw(stage, "inside"))
    assert isinstance(answer, UnroutableMessageError)
    assert "refuses" in str(answer)
