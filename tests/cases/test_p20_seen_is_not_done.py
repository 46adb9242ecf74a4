"""What was seen but not done is done at its redelivery; what was done is not done again."""

import pytest

from amqp_agents import RetryPolicy, agent
from tests.cases.checks import RECONNECT_SECONDS, canary
from tests.cases.stage import Done, Place, Work, message, on_stage, until
from tests.nodes.proxy import Proxy

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.xfail(strict=True, reason="needs: idempotency ledger"),
]


@pytest.mark.parametrize("fault", ["reset", "cut"])
async def test_a_lost_ack_answers_with_the_stored_result(place: Place, fault: str) -> None:
    runs: list[int] = []

    @agent("work", concurrency=1)
    async def work(given: Work) -> Done:
        runs.append(given.n)
        return Done(n=given.n)

    async with Proxy(place.port) as proxy:
        url = proxy.url(place.url)
        async with on_stage(place, work, worker_url=url) as stage:
            publish = stage.broker.publish

            async def cut_after_reply(publishing: object, **options: object) -> None:
                await publish(publishing, **options)  # type: ignore[arg-type]
                getattr(proxy, fault)()
                stage.broker.publish = publish  # type: ignore[method-assign]

            stage.broker.publish = cut_after_reply  # type: ignore[assignment]
            assert await stage.caller.request("work", {"n": 4}, timeout_seconds=10) == {"n": 4}
            await canary(stage, "work", RECONNECT_SECONDS)
            assert runs == [4, 0]


async def test_a_retried_failure_is_new_and_then_a_duplicate(place: Place) -> None:
    runs: list[int] = []

    @agent("work", concurrency=1, retry=RetryPolicy(max_attempts=3, base_seconds=0))
    async def work(given: Work) -> None:
        runs.append(given.n)
        if len(runs) == 1:
            raise ValueError("once")

    async with on_stage(place, work) as stage:
        sent = message("work", 4, idempotency_key="k")
        await stage.caller.publish(sent)
        await until(lambda: stage.journal.count("handled", sent.message_id) == 1, "done")
        await stage.caller.publish(message("work", 4, idempotency_key="k"))
        await canary(stage, "work")
        assert runs == [4, 4, 0]
