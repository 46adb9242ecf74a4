"""Testing an agent: no broker, nothing mocked. Needs pytest-asyncio in auto mode."""

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


async def test_refunds_are_risky() -> None:
    async with app.test() as client:
        assert (await client.request(review, Draft(text="refund"))).risk_level == "high"


async def test_the_function_alone_is_just_a_function() -> None:
    assert (await review(Draft(text="hello"))).risk_level == "low"
