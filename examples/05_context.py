"""The context of a handling: its deadline, "not now", and messages that leave on success."""

import asyncio

from pydantic import BaseModel

from amqp_agents import Agent, AgentApp, Context, Outgoing, RetryLater


class Job(BaseModel):
    name: str


worker = Agent("worker_agent")
listener = Agent("listener_agent")
open_at = 3  # the model's rate limit lets us in at the third try


@worker.on("work")
async def work(job: Job, context: Context) -> Job:
    global open_at
    open_at -= 1
    await context.publish(Outgoing({"name": job.name}, event="job.finished"))
    if open_at:  # nothing was published: what is raised takes the event back
        raise RetryLater(5, "rate limit")  # spends no attempt, but may not outlive the deadline
    left = context.remaining_seconds or 0.0
    print(f"attempt {context.attempt}, about {round(left, -1):.0f} s left")
    return Job(name=job.name.upper())


@listener.on_event("job.*")
async def hear(job: Job, context: Context) -> None:
    print(f"heard {context.message.intent} of {job.name}, said by {context.message.sender}")


async def main() -> None:
    async with AgentApp([worker, listener]).test() as client:
        asking = asyncio.create_task(client.request(work, Job(name="draft"), timeout_seconds=60))
        await client.advance(11)
        print("answer:", (await asking).name)
        await client.advance(1)


if __name__ == "__main__":
    asyncio.run(main())
