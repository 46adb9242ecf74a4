"""Starting and stopping: drain, and what is said of a topology that is not as declared."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from pydantic import BaseModel

from amqp_agents import AgentApp, Outgoing, RabbitMQBroker, UnroutableMessageError, agent, connect
from amqp_agents.config import load_settings
from amqp_agents.errors import TopologyConflictError, TopologyMissingError
from amqp_agents.lifecycle import Serving
from amqp_agents.topology.names import dead_letter_queue, inbox
from tests.conformance.waiting import until, until_depth
from tests.nodes.endpoint import Endpoint
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq


class Job(BaseModel):
    number: int = 0


class Handlers:
    """What the handlers of `reader` did; they end once `gate` is set."""

    def __init__(self) -> None:
        self.began = asyncio.Semaphore(0)
        self.gate = asyncio.Event()
        self.started = self.finished = self.cancelled = 0

    async def running(self, count: int) -> None:
        """Return once so many more run."""
        async with asyncio.timeout(10):
            for _ in range(count):
                await self.began.acquire()

    async def run(self) -> None:
        self.started += 1
        self.began.release()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1


def app_of(handlers: Handlers) -> AgentApp:
    @agent("reader", concurrency=2)
    async def reader(job: Job) -> Job:
        await handlers.run()
        return job

    @agent("other")
    async def other(job: Job) -> Job:
        return job

    return AgentApp([reader, other])


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RabbitMQBroker]:
    broker = RabbitMQBroker(load_settings(url=url), name="worker")
    await broker.connect(timeout_seconds=10)
    try:
        yield broker
    finally:
        await broker.close()


@asynccontextmanager
async def serving(app: AgentApp, url: str) -> AsyncIterator[Serving]:
    """The app's consumers, running; the test drains them."""
    async with connected(url) as broker:
        await broker.apply(app.topology())
        serving = app.serving(broker, load_settings(url=url))
        await serving.start()
        yield serving


async def publish_jobs(url: str, count: int) -> None:
    async with connect(url) as client:
        for number in range(count):
            await client.publish(Outgoing(Job(number=number), to="reader"))


async def manage(rabbitmq: Endpoint, url: str, method: str, queue: str, body: Any = None) -> None:
    """Do to a queue what an operator might, by the management API."""
    vhost = quote(unquote(urlsplit(url).path[1:]), safe="")
    path = f"queues/{vhost}/{quote(queue, safe='')}"
    await asyncio.to_thread(rabbitmq.management.call, method, path, body)


async def test_a_drain_lets_running_handlers_finish_and_takes_nothing_new(app_url: str) -> None:
    handlers = Handlers()
    app = app_of(handlers)
    stop, ready = asyncio.Event(), asyncio.Event()
    async with connected(app_url) as broker, connected(app_url) as watching:
        running = asyncio.create_task(
            app.run(
                broker,
                settings=load_settings(url=app_url, grace_seconds=10.0),
                until=stop,
                declare=True,
                on_ready=ready.set,
            )
        )
        await asyncio.wait_for(ready.wait(), 15)
        async with connect(app_url) as client:
            asking = asyncio.create_task(client.request("reader", Job(number=7)))
            await handlers.running(1)
            await publish_jobs(app_url, 4)
            await handlers.running(1)
            await until_depth(watching, inbox("reader"), 3)
            stop.set()
            await publish_jobs(app_url, 1)
            await until_depth(watching, inbox("reader"), 4)
            assert not running.done()
            handlers.gate.set()
            await asyncio.wait_for(running, 5)
            assert await asyncio.wait_for(asking, 5) == {"number": 7}
        await broker.close()
        # Two were acknowledged: they are not among those that are left.
        await until_depth(watching, inbox("reader"), 4)
        assert await watching.depth(dead_letter_queue("reader")) == 0
    assert (handlers.started, handlers.finished, handlers.cancelled) == (2, 2, 0)


@pytest.fixture
async def proxy(app_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(urlsplit(app_url).port or 5672) as proxy:
        yield proxy


async def test_a_drain_hands_back_what_was_prefetched_behind_running_handlers(
    app_url: str, proxy: Proxy
) -> None:
    """After a lost connection the new one prefetches while the old handlers still run."""
    handlers = Handlers()
    way = proxy.url(app_url)
    async with connected(app_url) as watching, serving(app_of(handlers), way) as worker:
        await publish_jobs(app_url, 5)
        await handlers.running(2)
        await until_depth(watching, inbox("reader"), 3)
        proxy.reset()
        (reader,) = [each for each in worker.consumers if each.agent.name == "reader"]

        async def prefetched() -> bool:
            return len(reader._handlings) == 4

        await until(prefetched, "two more deliveries, behind those that run")
        assert await watching.depth(inbox("reader")) == 3
        draining = asyncio.create_task(worker.drain(10))
        handlers.gate.set()
        assert await asyncio.wait_for(draining, 10) == 0
        # The acks of the first two were lost with their connection: they come again.
        await until_depth(watching, inbox("reader"), 5)
    assert (handlers.started, handlers.finished, handlers.cancelled) == (2, 2, 0)


async def test_a_handler_that_outlasts_the_grace_period_is_cut_off_and_its_message_goes_back(
    app_url: str,
) -> None:
    handlers = Handlers()
    async with connected(app_url) as watching, serving(app_of(handlers), app_url) as worker:
        await publish_jobs(app_url, 1)
        await handlers.running(1)
        assert await worker.drain(0.2) == 1
        await until_depth(watching, inbox("reader"), 1)
        assert await watching.depth(dead_letter_queue("reader")) == 0
    assert (handlers.finished, handlers.cancelled) == (0, 1)


async def test_a_start_without_topology_names_what_is_missing_and_the_command(
    app_url: str, rabbitmq: Endpoint
) -> None:
    app = app_of(Handlers())

    async def refused(broker: RabbitMQBroker) -> TopologyMissingError:
        with pytest.raises(TopologyMissingError) as caught:
            await app.run(broker, settings=load_settings(url=app_url), until=asyncio.Event())
        return caught.value

    async with connected(app_url) as broker:
        empty = await refused(broker)
        assert "exchange agent." in str(empty)
        assert "'amqp-agents topology apply'" in str(empty)
        assert "'run --declare'" in str(empty)
        assert await broker.depth(inbox("reader")) is None, "nothing was created"

        await broker.apply(app.topology())
        await manage(rabbitmq, app_url, "DELETE", dead_letter_queue("reader"))
        partly = await refused(broker)
        assert partly.missing[0] == f"queue {dead_letter_queue('reader')}"
        assert all("reader" in name for name in partly.missing)

        await broker.apply(app.topology())
        stop = asyncio.Event()
        stop.set()
        await app.run(broker, settings=load_settings(url=app_url), until=stop)


async def test_a_queue_declared_with_other_arguments_is_told_and_left_alone(
    app_url: str, rabbitmq: Endpoint
) -> None:
    app = app_of(Handlers())
    async with connected(app_url) as broker:
        await broker.apply(app.topology())
        queue = inbox("reader")
        await manage(rabbitmq, app_url, "DELETE", queue)
        other = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
        await manage(rabbitmq, app_url, "PUT", queue, other)
        for declare in (False, True):
            with pytest.raises(TopologyConflictError) as caught:
                await app.run(
                    broker,
                    settings=load_settings(url=app_url),
                    until=asyncio.Event(),
                    declare=declare,
                )
            assert f"queue {queue}" in str(caught.value)
            assert "x-dead-letter-exchange" in str(caught.value)
            assert "topology check" in str(caught.value) or "nothing was changed" in str(
                caught.value
            )


async def test_a_queue_that_is_deleted_and_made_again_is_consumed_again(
    app_url: str, rabbitmq: Endpoint
) -> None:
    handlers = Handlers()
    handlers.gate.set()
    app = app_of(handlers)
    async with serving(app, app_url) as worker, connect(app_url) as client:
        assert await client.request("reader", Job(number=1)) == {"number": 1}
        (other,) = [each for each in worker.consumers if each.agent.name == "other"]
        before = other.intake.subscriptions[0].channel  # type: ignore[attr-defined]
        await manage(rabbitmq, app_url, "DELETE", inbox("reader"))
        (reader,) = [each for each in worker.consumers if each.agent.name == "reader"]

        async def noticed() -> bool:
            return "does not exist" in (reader.intake.subscriptions[0].failure or "")

        await until(noticed, "the consumer to say that its queue is gone")
        with pytest.raises(UnroutableMessageError):
            await client.request("reader", Job(number=2), timeout_seconds=5)
        assert await client.request("other", Job(number=3)) == {"number": 3}

        await worker.broker.apply(app.topology())
        assert await client.request("reader", Job(number=4), timeout_seconds=10) == {"number": 4}
        assert other.intake.subscriptions[0].channel is before  # type: ignore[attr-defined]
        assert await worker.drain(5) == 0
