"""Many calls on one connection, a few at a time, each on a channel no other call uses."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from aiormq.abc import AbstractChannel

from amqp_agents.brokers.rabbitmq.faults import answered
from amqp_agents.brokers.rabbitmq.session import Session, close_channel

Item = TypeVar("Item")
Result = TypeVar("Result")

WORKERS = 8
ANSWER_SECONDS = 30.0  # a broker that starts hundreds of quorum queues takes its time


class Crew:
    """Runs a call for each of many items.

    An error closes the channel it happens on, so the answer to a call is that call's alone;
    the worker goes on with a new channel.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def each(
        self,
        items: Iterable[Item],
        call: Callable[[AbstractChannel, Item], Coroutine[Any, Any, Result]],
        *,
        workers: int = WORKERS,
    ) -> list[tuple[Item, Result]]:
        """Return every item with its result, in order; an error ends them all.

        After an error no call begins, but those under way get their answers: RabbitMQ ends
        the whole connection for a channel that is closed in the midst of one it refuses.

        Raises: what `call` raises; BrokerConnectionError for an answer that never came.
        """
        work = deque(enumerate(items))
        count = len(work)
        results: dict[int, tuple[Item, Result]] = {}
        tasks = [
            asyncio.create_task(self._work(work, call, results)) for _ in range(min(workers, count))
        ]
        try:
            for task in tasks:
                await asyncio.wait({task})
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            task.result()
        return [results[index] for index in range(count)]

    async def _work(
        self,
        work: deque[tuple[int, Item]],
        call: Callable[[AbstractChannel, Item], Coroutine[Any, Any, Result]],
        results: dict[int, tuple[Item, Result]],
    ) -> None:
        channel: AbstractChannel | None = None
        try:
            while work:
                index, item = work.popleft()
                if channel is None or channel.is_closed:
                    channel = await self._session.open_channel()
                results[index] = item, await answered(call(channel, item), ANSWER_SECONDS)
        except BaseException:
            work.clear()
            raise
        finally:
            if channel is not None:
                await close_channel(channel)
