"""An agent in a dozen lines, and the first questions to it."""

import asyncio

from pydantic import BaseModel

from amqp_agents import AgentApp, agent


class Draft(BaseModel):
    text: str


class Review(BaseModel):
    risk_level: str


@agent("quality_agent")
async def review(draft: Draft) -> Review:
    return Review(risk_level="high" if "refund" in draft.text else "low")


app = AgentApp([review])


async def main() -> None:
    async with app.test() as client:  # in memory; on RabbitMQ it is app.client()
        for text in ("where is my order?", "refund please"):
            answer = await client.request(review, Draft(text=text))
            print(f"{text!r} has risk {answer.risk_level}")


if __name__ == "__main__":
    asyncio.run(main())
