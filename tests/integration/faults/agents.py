"""The worker under fault: a quick agent, a slow one, a failing one; all tell the ledger."""

import asyncio
import os

from pydantic import BaseModel

from amqp_agents import AgentApp, Context, RetryPolicy, agent
from tests.integration.faults.ledger import tell

LEDGER = int(os.environ.get("LEDGER_PORT", "0"))


class Work(BaseModel):
    """`until` is what a slow handler waits for: the test releases it at the ledger."""

    key: str
    until: str = ""


class Done(BaseModel):
    key: str


@agent("quick", concurrency=20)
async def quick(work: Work) -> Done:
    await tell(LEDGER, "handled", work.key)
    return Done(key=work.key)


@agent("slow", concurrency=5)
async def slow(work: Work) -> Done:
    await tell(LEDGER, "started", work.key)
    try:
        await tell(LEDGER, "await", work.until)
    except asyncio.CancelledError:
        await tell(LEDGER, "cancelled", work.key)
        raise
    await tell(LEDGER, "finished", work.key)
    return Done(key=work.key)


@agent("failing", retry=RetryPolicy(max_attempts=4))
async def failing(work: Work, context: Context) -> Done:
    await tell(LEDGER, "attempt", f"{work.key}:{context.attempt}")
    raise ValueError("it always fails")


app = AgentApp([quick, slow, failing])
