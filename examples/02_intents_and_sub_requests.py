"""One agent, several intents; a handler that asks another agent before it answers."""

import asyncio

from pydantic import BaseModel

from amqp_agents import Agent, AgentApp, Context


class Order(BaseModel):
    order_id: str


class Delay(BaseModel):
    days: int


class Reply(BaseModel):
    text: str


orders = Agent("order_agent", role="lookup")
support = Agent("support_agent", role="support")


@orders.on("order.delay")
async def delay_of(order: Order) -> Delay:
    return Delay(days=4)


@orders.on("order.address")
async def address_of(order: Order) -> dict[str, str]:
    return {"city": "Chengdu"}


@support.on("reply.draft")
async def draft(order: Order, context: Context) -> Reply:
    delay = await context.request(delay_of, order)  # typed: a Delay comes back
    address = await context.request("order_agent", order, intent="order.address")  # by name: a dict
    return Reply(text=f"Your order to {address['city']} is {delay.days} days late.")


app = AgentApp([orders, support])


async def main() -> None:
    async with app.test() as client:
        reply = await client.request(draft, Order(order_id="O-17"))
        print(reply.text)


if __name__ == "__main__":
    asyncio.run(main())
