"""Worker processes of the cases: `amqp-agents run tests.cases.workers:app`, telling by stdout."""

import asyncio
import os
import time
from typing import Any

from pydantic import BaseModel

from amqp_agents import AgentApp, RetryPolicy, agent


class Job(BaseModel):
    """What is done for so long, or never."""

    n: int = 0
    seconds: float = 0.0
    kill: str = ""


class Did(BaseModel):
    n: int = 0


def tell(what: str, n: int) -> None:
    os.write(1, f"{what} {n}\n".encode())  # one write, whichever thread tells


@agent("steady", concurrency=5)
async def steady(job: Job) -> Did:
    tell("began", job.n)
    try:
        await asyncio.sleep(job.seconds)
    except asyncio.CancelledError:
        tell("cut", job.n)
        raise
    tell("did", job.n)
    return Did(n=job.n)


@agent("threaded", concurrency=5)
def threaded(job: Job) -> Did:
    tell("began", job.n)
    time.sleep(job.seconds)
    tell("did", job.n)
    return Did(n=job.n)


class Odd(BaseException):
    """Passes every `except Exception`."""


KILLS: dict[str, Any] = {
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "BaseException": Odd,
}


@agent(
    "fragile",
    concurrency=int(os.environ.get("CONCURRENCY", "1")),
    retry=RetryPolicy(max_attempts=2, base_seconds=0),
)
async def fragile(job: Job) -> Did:
    tell("began", job.n)
    if job.kill == "exit":
        await asyncio.sleep(0.05)
        os._exit(1)
    if job.kill:
        raise KILLS[job.kill]()
    await asyncio.sleep(job.seconds)
    tell("did", job.n)
    return Did(n=job.n)


app = AgentApp([steady, threaded, fragile])
