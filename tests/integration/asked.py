"""Agents that are asked in the tests of requests, and what they saw."""

import asyncio
import time

from pydantic import BaseModel

from amqp_agents import (
    AgentApp,
    DependencyFailedError,
    PermissionDeniedError,
    RetryPolicy,
    agent,
)


class Question(BaseModel):
    number: int = 0


class Answer(BaseModel):
    number: int = 0


class Asked:
    """`began` is released by each call of `gated`, which answers once `gate` is set."""

    def __init__(self) -> None:
        self.began = asyncio.Semaphore(0)
        self.gate = asyncio.Event()
        self.raised_at = 0.0


def asked_agents(asked: Asked) -> AgentApp:
    """Agents that answer after 0.2 s, at once, when told to, or with an error."""

    @agent("steady", concurrency=50)
    async def steady(question: Question) -> Answer:
        await asyncio.sleep(0.2)
        return Answer(number=question.number)

    @agent("quick", concurrency=50)
    async def quick(question: Question) -> Answer:
        return Answer(number=question.number)

    @agent("gated", concurrency=50)
    async def gated(question: Question) -> Answer:
        asked.began.release()
        await asked.gate.wait()
        return Answer(number=question.number)

    @agent("refusing")
    async def refusing(question: Question) -> Answer:
        asked.raised_at = time.monotonic()
        raise PermissionDeniedError("not for you")

    @agent("failing", retry=RetryPolicy(max_attempts=1))
    async def failing(question: Question) -> Answer:
        raise DependencyFailedError("the database is away")

    return AgentApp([steady, quick, gated, refusing, failing])
