"""Blocking code: a plain `def` runs in a thread, and the event loop stays free.

The other way round, a script that blocks while it asks agents elsewhere, is `SyncClient`.
"""

import asyncio
import threading

from pydantic import BaseModel

from amqp_agents import AgentApp, Context, agent


class Page(BaseModel):
    number: int


class Words(BaseModel):
    count: int


four_are_here = threading.Barrier(4)


@agent("reader_agent", concurrency=4)  # at most four threads of it at once
def read(page: Page, context: Context) -> Words:
    four_are_here.wait(timeout=10)  # blocks this thread until the others are here too
    if context.cancelled:  # a thread cannot be stopped from outside, but it can look
        return Words(count=0)
    return Words(count=page.number * 100)


app = AgentApp([read])


async def main() -> None:
    async with app.test() as client:
        pages = [client.request(read, Page(number=number)) for number in range(1, 5)]
        answers = await asyncio.gather(*pages)
        print([answer.count for answer in answers])


if __name__ == "__main__":
    asyncio.run(main())
