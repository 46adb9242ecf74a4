"""The same test by the pytest plugin: no other plugin, and on RabbitMQ by --amqp-agents-url."""

import pytest
from pydantic import BaseModel

from amqp_agents import AgentApp, Client, agent


class Draft(BaseModel):
    text: str


class Review(BaseModel):
    risk_level: str


@agent("quality_agent")
async def review(draft: Draft) -> Review:
    return Review(risk_level="high" if "refund" in draft.text else "low")


@pytest.fixture
def agent_app() -> AgentApp:
    return AgentApp([review])


async def test_refunds_are_risky(client: Client) -> None:
    assert (await client.request(review, Draft(text="refund"))).risk_level == "high"
