"""A handler longer than the broker's acknowledgement timeout takes nobody else's channel."""

from collections.abc import Iterator

import pytest

from amqp_agents import agent
from tests.cases.checks import canary
from tests.cases.stage import Place, Work, message, on_stage, until
from tests.nodes.endpoint import Endpoint
from tests.nodes.node import Node

pytestmark = [pytest.mark.rabbitmq, pytest.mark.node]

IMPATIENT = (
    "application:set_env(rabbit, consumer_timeout, 2000), "
    "application:set_env(rabbit, channel_tick_interval, 500)."
)


@pytest.fixture(scope="module")
def impatient(node_version: str) -> Iterator[Node]:
    """A node that wants its acknowledgements within 2 s, and looks twice a second."""
    with Node(node_version) as node:
        node.ctl("eval", IMPATIENT)
        yield node


@pytest.fixture
def impatient_place(impatient: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("AMQP_AGENTS_MANAGEMENT_URL", impatient.management_url)
    vhost = impatient.create_vhost()
    endpoint = Endpoint(impatient.url, impatient.management_url, lambda: None, "impatient")
    yield Place(endpoint, endpoint.url_for(vhost))
    impatient.delete_vhost(vhost)


async def test_the_other_consumers_of_the_process_go_on(impatient_place: Place) -> None:
    runs: list[int] = []

    @agent("slow", time_limit_seconds=5)
    async def slow(given: Work) -> None:
        runs.append(given.n)
        if given.n and len(runs) == 1:
            await until(lambda: len(runs) > 1, "delivered again", 20)

    @agent("other", concurrency=1)
    async def other(given: Work) -> None: ...

    async with on_stage(impatient_place, slow, other) as stage:
        sent = message("slow", 1)
        await stage.caller.publish(sent)
        await until(lambda: stage.journal.count("handled", sent.message_id) == 1, "again", 20)
        await canary(stage, "other")
        await canary(stage, "slow")
        assert stage.broker.connections == 2
        consuming = [
            r.getMessage() for r in stage.told.records if r.getMessage().startswith("consuming ")
        ]
        assert sum("agent.other" in line for line in consuming) == 1
        failing = [
            r.getMessage() for r in stage.told.records if "consumer_failing" in r.getMessage()
        ]
        assert failing
        assert all("agent.slow" in line and "timed out" in line for line in failing)
        assert await stage.depth("agent.slow") == 0


async def test_a_handler_within_the_timeout_is_never_taken_away(impatient_place: Place) -> None:
    runs: list[int] = []

    @agent("slow", time_limit_seconds=1.5)
    async def slow(given: Work) -> None:
        runs.append(given.n)
        if given.n:
            await until(lambda: len(runs) > 1, "never", 20)

    async with on_stage(impatient_place, slow) as stage:
        sent = message("slow", 1)
        await stage.caller.publish(sent)
        await until(lambda: stage.journal.count("retried", sent.message_id) == 1, "timed out", 5)
        await until(lambda: stage.journal.count("handled", sent.message_id) == 1, "again", 10)
        assert runs == [1, 1]
        assert stage.counted("lost_settlements_total", agent="slow") == 0
