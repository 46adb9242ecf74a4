"""Uses that must type-check, each with the type that a reader would expect; and they run."""

from typing import Any, assert_type

from pydantic import BaseModel

from amqp_agents import (
    Agent,
    AgentApp,
    AgentMessage,
    Caller,
    Client,
    Context,
    Outgoing,
    RawMessage,
    agent,
)
from tests.types.my_agents import Draft, Review, review


class Other(BaseModel):
    """Another answer."""

    n: int


class Risky(Draft):
    """A question that says more."""

    extra: int = 0


quality = Agent("quality_agent", role="quality", capabilities=["review"])


@quality.on("review_reply_risk")
async def reply_risk(draft: Draft, context: Context) -> Outgoing[Review]:
    assert_type(await context.request(review, draft), Review)
    await context.publish(Outgoing(draft, event="draft.reviewed"))
    return Outgoing(Review(risk_level="low"), intent="done")


@quality.on_event("ticket.closed", where={"amount_gte": 100}, fields=["text"])
async def closed(draft: Draft) -> None: ...


@agent("sync_agent")
def count(draft: Draft) -> Other:
    return Other(n=len(draft.text))


@agent("silent")
async def silent(draft: Draft, *, context: Context) -> None: ...


@agent("loose")
async def loose(draft: Draft, message: AgentMessage) -> dict[str, Any]:
    return {"from": str(message.sender)}


@agent("wrapping")
def wrapping(draft: Draft) -> Outgoing[Other]:
    return Outgoing(Other(n=1))


@agent("bridge")
async def bridge(raw: RawMessage) -> None: ...


big = AgentApp([review, quality, count, silent, loose, wrapping, bridge])


async def ask_anyone(caller: Caller) -> str:
    """What only asks takes whoever can: a client, or a context."""
    answer = await caller.request(review, Draft(text="refund"))
    return assert_type(answer.risk_level, str)


async def ask(client: Client) -> None:
    """Every way to ask, and what it gives."""
    assert_type(await client.request(review, Draft(text="x")), Review)
    assert_type(await client.request(review, Risky(text="x")), Review)
    assert_type(await client.request(reply_risk, Draft(text="x"), timeout_seconds=5), Review)
    assert_type(await client.request(count, Draft(text="x")), Other)
    assert_type(await client.request(wrapping, Draft(text="x")), Other)
    assert_type(await client.request(loose, Draft(text="x")), dict[str, Any])
    assert_type(await client.request(silent, Draft(text="x")), None)
    assert_type(await client.request("reviewer", {"text": "x"}), dict[str, Any])
    assert_type(await client.request("reviewer", Draft(text="x"), returns=Review), Review)
    await client.publish(Outgoing({"text": "x"}, to="reviewer"))
    assert await ask_anyone(client) == "high"


async def main() -> None:
    """Run all of it in memory."""
    async with big.test() as client:
        assert_type(client, Client)
        await ask(client)
    assert_type(await review(Draft(text="x")), Review)
    assert_type(count(Draft(text="x")), Other)
    assert_type(wrapping(Draft(text="x")), Outgoing[Other])


async def unit(context: Context) -> None:
    """What is injected is a plain parameter in a unit test."""
    assert_type(await reply_risk(Draft(text="x"), context), Outgoing[Review])
    await silent(Draft(text="x"), context=context)
    await closed(Draft(text="x"))
