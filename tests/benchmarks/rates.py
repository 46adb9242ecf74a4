"""How many messages go through: publish, consume, request; ours beside raw aio-pika.

Both sides confirm every publish, send persistent messages of the same size to durable quorum
queues, and keep the same number under way. CPU time is this process's, per message: on a
shared machine it says more than the rate.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

import aio_pika
from pydantic import BaseModel

from amqp_agents import AgentApp, AgentMessage, Client, MessageType, RabbitMQBroker, agent
from amqp_agents.config import load_settings
from amqp_agents.lifecycle import ensure_topology

UNDER_WAY = 100
TEXT = "x" * 900


class Note(BaseModel):
    text: str


class Seen(BaseModel):
    length: int


@dataclass(frozen=True, slots=True)
class Rate:
    """One measurement: messages per second, and CPU microseconds per message."""

    what: str
    by: str
    per_second: float
    cpu_us: float


async def measured(what: str, by: str, count: int, work: Callable[[], Awaitable[object]]) -> Rate:
    """Time `work`, which moves `count` messages."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Rate(what, by, count / wall, cpu / count * 1e6)


async def in_window(count: int, one: Callable[[], Awaitable[object]]) -> None:
    """Run `one` `count` times, at most `UNDER_WAY` at once."""
    window = asyncio.Semaphore(UNDER_WAY)

    async def bounded() -> None:
        async with window:
            await one()

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(bounded())


async def ours(url: str, count: int) -> list[Rate]:
    """Measure this package: publish into an idle inbox, then consume it, then ask."""
    left, enough = count, asyncio.Event()

    @agent("sink", concurrency=UNDER_WAY)
    async def sink(note: Note) -> Seen:
        nonlocal left
        left -= 1
        if left == 0:
            enough.set()
        return Seen(length=len(note.text))

    app, settings = AgentApp([sink]), load_settings(url=url)
    broker = RabbitMQBroker(settings, name="bench")
    await broker.connect(timeout_seconds=10)
    try:
        await ensure_topology(broker, app.topology(), declare=True)
        client = await Client(broker, settings=settings).open()
        publish = await measured("publish", "amqp_agents", count, lambda: _publishes(client, count))

        async def consumed() -> None:
            await serving.start()
            await asyncio.wait_for(enough.wait(), 120)

        serving = app.serving(broker, settings)
        consume = await measured("consume", "amqp_agents", count, consumed)

        async def one() -> object:
            return await client.request(sink, Note(text=TEXT))

        ask = await measured("request", "amqp_agents", count, lambda: in_window(count, one))
        await serving.drain(1.0)
        await client.close()
    finally:
        await broker.close()
    return [publish, consume, ask]


async def _publishes(client: Client, count: int) -> None:
    def message() -> AgentMessage:
        return AgentMessage(
            sender="bench",
            recipient="sink",
            message_type=MessageType.DIRECT,
            payload={"text": TEXT},
        )

    await in_window(count, lambda: client.publish(message()))


async def raw(url: str, count: int) -> list[Rate]:
    """Measure aio-pika used directly: no envelope, no model, no digest, no supervision."""
    async with await aio_pika.connect(url) as connection:
        out = await connection.channel(publisher_confirms=True)
        name = f"bench.{uuid4().hex[:8]}"
        queue = await out.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        exchange = out.default_exchange
        publish = await measured(
            "publish",
            "aio-pika",
            count,
            lambda: in_window(count, lambda: exchange.publish(_body(), name)),
        )
        consume = await measured(
            "consume", "aio-pika", count, lambda: _raw_consume(connection, name, count)
        )
        request = await measured(
            "request", "aio-pika", count, lambda: _raw_requests(connection, name, count)
        )
        await queue.delete(if_unused=False, if_empty=False)
    return [publish, consume, request]


def _body() -> aio_pika.Message:
    return aio_pika.Message(
        b'{"text": "' + TEXT.encode() + b'"}',
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=uuid4().hex,
        headers={"aa-trace-id": uuid4().hex, "aa-sender": "bench", "aa-recipient": "sink"},
    )


async def _raw_consume(connection: aio_pika.abc.AbstractConnection, name: str, count: int) -> None:
    consuming = await connection.channel()
    await consuming.set_qos(UNDER_WAY)
    seen, enough = 0, asyncio.Event()

    async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        nonlocal seen
        await message.ack()
        seen += 1
        if seen == count:
            enough.set()

    queue = await consuming.get_queue(name)
    tag = await queue.consume(on_message)
    await asyncio.wait_for(enough.wait(), 120)
    await queue.cancel(tag)
    await consuming.close()


async def _raw_requests(connection: aio_pika.abc.AbstractConnection, name: str, count: int) -> None:
    asking, answering = await connection.channel(), await connection.channel()
    await answering.set_qos(UNDER_WAY)
    waiting: dict[str, asyncio.Future[bytes]] = {}
    replies = await asking.declare_queue(exclusive=True)

    async def on_request(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        answer = aio_pika.Message(b"{}", correlation_id=message.correlation_id)
        await answering.default_exchange.publish(answer, str(message.reply_to))
        await message.ack()

    async def on_reply(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        waiting.pop(str(message.correlation_id)).set_result(message.body)
        await message.ack()

    async def request() -> None:
        question = _body()
        question.correlation_id, question.reply_to = uuid4().hex, replies.name
        answer = waiting[question.correlation_id] = asyncio.get_running_loop().create_future()
        await asking.default_exchange.publish(question, name)
        await answer

    served = await answering.get_queue(name)
    tag = await served.consume(on_request)
    await replies.consume(on_reply)
    await in_window(count, request)
    await served.cancel(tag)
    await asking.close()
    await answering.close()


def medians(rounds: Sequence[Sequence[Rate]]) -> list[Rate]:
    """Return the median of each measurement over the rounds."""
    return [
        Rate(
            same[0].what,
            same[0].by,
            median(rate.per_second for rate in same),
            median(rate.cpu_us for rate in same),
        )
        for same in zip(*rounds, strict=True)
    ]
