"""The agents that the uses beside it are about."""

from pydantic import BaseModel

from amqp_agents import AgentApp, agent


class Draft(BaseModel):
    """A question."""

    text: str


class Review(BaseModel):
    """An answer."""

    risk_level: str


@agent("reviewer")
async def review(draft: Draft) -> Review:
    """Find the risky words."""
    return Review(risk_level="high" if "refund" in draft.text else "low")


app = AgentApp([review])
