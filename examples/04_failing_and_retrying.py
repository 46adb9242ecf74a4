"""A failing handler is tried again, later each time; at last the message is a dead letter."""

import asyncio

from pydantic import BaseModel

from amqp_agents import AgentApp, AgentCommunicationError, Context, RetryPolicy, agent


class Question(BaseModel):
    order_id: str


class History(BaseModel):
    compensated: bool


@agent("history_agent", retry=RetryPolicy(max_attempts=3))
async def look_up(question: Question, context: Context) -> History:
    print(f"  attempt {context.attempt} for {question.order_id}")
    if question.order_id == "O-17" and context.attempt == 3:
        return History(compensated=True)
    raise ConnectionError("the history service does not answer")


app = AgentApp([look_up])


async def main() -> None:
    async with app.test() as client:
        for order_id in ("O-17", "O-18"):
            print(order_id)
            asking = asyncio.create_task(client.request(look_up, Question(order_id=order_id)))
            await client.advance(10)  # the pauses of 1 and 2 seconds pass at once
            try:
                print(" ", await asking)
            except AgentCommunicationError as error:
                print(" ", error)

        letters = await client.broker.browse("agent.history_agent.dlq")
        while (letter := await letters.get()) is not None:
            headers = letter.delivery.properties.headers
            print("dead letter:", headers["aa-fault-message"], "- attempts:", headers["aa-attempt"])
        await letters.close()  # looking takes nothing away


if __name__ == "__main__":
    asyncio.run(main())
