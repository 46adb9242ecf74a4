"""Events: said once, heard by whoever declared an interest, and only the part of interest."""

import asyncio
from typing import Any

from pydantic import BaseModel, ConfigDict

from amqp_agents import Agent, AgentApp, Outgoing


class Proposal(BaseModel):
    model_config = ConfigDict(extra="allow")

    action: str


class Closed(BaseModel):
    ticket_id: str


approval = Agent("approval_agent", role="approver")
audit = Agent("audit_agent", role="auditor")


@approval.on_event(
    "action.proposed",
    where={"risk_level": ["high"], "amount_gte": 10000},  # the rest is not for us
    fields=["action", "amount"],  # and of these, no more than we need
)
async def consider(proposal: Proposal) -> None:
    print("approval_agent considers", proposal.model_dump())


@audit.on_event("ticket.*")
async def note(closed: Closed) -> None:
    print("audit_agent notes that", closed.ticket_id, "is closed")


async def main() -> None:
    async with AgentApp([approval, audit]).test() as client:
        await propose(client, action="coupon", amount=2000, risk_level="low")
        await propose(client, action="refund", amount=20000, risk_level="high", phone="555 0100")
        await client.publish(Outgoing({"ticket_id": "T4821"}, broadcast="ticket.closed"))
        await client.publish(Outgoing({"mood": "sunny"}, event="weather.changed"))  # no matter
        await client.advance(1)  # time for the handlers


async def propose(client: Any, **proposal: Any) -> None:
    await client.publish(Outgoing(proposal, event="action.proposed"))


if __name__ == "__main__":
    asyncio.run(main())
