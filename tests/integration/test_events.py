"""Events and broadcasts: who gets them, and who does not."""

import asyncio
from collections import Counter

import pytest
from pydantic import BaseModel

from amqp_agents import AgentApp, Client, Context, Outgoing
from amqp_agents.agent import Agent
from amqp_agents.topology.names import dead_letter_queue, inbox
from tests.conformance.waiting import until

pytestmark = pytest.mark.rabbitmq


class Ticket(BaseModel):
    number: int = 0


class Seen:
    """What the handlers of one test were called with."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    def note(self, who: str, ticket: Ticket) -> None:
        self._calls.put_nowait((who, ticket.number))

    async def some(self, count: int) -> Counter[tuple[str, int]]:
        """The next calls, in whatever order they came."""
        async with asyncio.timeout(10):
            return Counter([await self._calls.get() for _ in range(count)])

    @property
    def over(self) -> bool:
        return self._calls.empty()


def listening(seen: Seen, **patterns: str) -> list[Agent]:
    """An agent for each name, which listens to its pattern."""
    return [_listener(seen, name, pattern) for name, pattern in patterns.items()]


def _listener(seen: Seen, name: str, pattern: str) -> Agent:
    listener = Agent(name)

    @listener.on_event(pattern)
    async def on_event(ticket: Ticket) -> None:
        seen.note(name, ticket)

    return listener


async def everything_settled(client: Client, *names: str) -> None:
    """No agent has anything left, neither to do nor given up."""
    for name in names:
        assert await client.broker.depth(inbox(name)) == 0
        assert await client.broker.depth(dead_letter_queue(name)) == 0


async def test_an_event_reaches_every_agent_that_listens_once(app_url: str) -> None:
    seen = Seen()
    agents = listening(seen, first="ticket.closed", second="ticket.closed", third="invoice.paid")
    async with AgentApp(agents).test(app_url) as client:
        for number in range(20):
            await client.publish(Outgoing(Ticket(number=number), event="ticket.closed"))
        await client.publish(Outgoing(Ticket(number=99), event="invoice.paid"))
        calls = await seen.some(41)
        await everything_settled(client, "first", "second", "third")
    assert calls == Counter(
        [(name, number) for name in ("first", "second") for number in range(20)] + [("third", 99)]
    )
    assert seen.over


async def test_wildcards_stand_for_one_word_or_for_any_number(app_url: str) -> None:
    seen = Seen()
    agents = listening(seen, one="ticket.*", many="ticket.#", closed="*.closed")
    async with AgentApp(agents).test(app_url) as client:
        events = ("ticket.closed", "ticket.closed.late", "order.closed", "order.paid", "ticket")
        for number, event in enumerate(events):
            await client.publish(Outgoing(Ticket(number=number), event=event))
        calls = await seen.some(6)
        await everything_settled(client, "one", "many", "closed")
    assert calls == Counter(
        [("one", 0), ("many", 0), ("many", 1), ("many", 4), ("closed", 0), ("closed", 2)]
    )
    assert seen.over


async def test_a_broadcast_reaches_every_agent_that_listens(app_url: str) -> None:
    seen = Seen()
    agents = listening(seen, first="prices.changed", second="prices.*", third="ticket.closed")
    async with AgentApp(agents).test(app_url) as client:
        await client.publish(Outgoing(Ticket(number=1), broadcast="prices.changed"))
        await client.publish(Outgoing(Ticket(number=2), event="prices.changed"))
        calls = await seen.some(4)
        await everything_settled(client, "first", "second", "third")
    assert calls == Counter([(name, number) for name in ("first", "second") for number in (1, 2)])
    assert seen.over


async def test_an_event_nobody_listens_to_is_no_error(app_url: str) -> None:
    seen = Seen()
    async with AgentApp(listening(seen, only="ticket.closed")).test(app_url) as client:
        await client.publish(Outgoing(Ticket(number=1), event="nobody.cares"))
        await client.publish(Outgoing(Ticket(number=2), broadcast="nobody.cares"))
        await client.publish(Outgoing(Ticket(number=3), event="ticket.closed"))
        assert await seen.some(1) == Counter([("only", 3)])
        await everything_settled(client, "only")
    assert seen.over


async def test_an_agent_does_not_hear_its_own_event(app_url: str) -> None:
    seen = Seen()
    teller = Agent("teller")

    @teller.on("close")
    async def close(ticket: Ticket, context: Context) -> None:
        await context.publish(Outgoing(ticket, event="ticket.closed"))

    @teller.on_event("ticket.closed")
    async def on_closed(ticket: Ticket) -> None:
        seen.note("teller", ticket)

    (hearer,) = listening(seen, hearer="ticket.closed")
    async with AgentApp([teller, hearer]).test(app_url) as client:
        await client.request("teller", Ticket(number=1), intent="close")
        assert await seen.some(1) == Counter([("hearer", 1)])
        # Somebody else's event follows its own, so that has been looked at by then.
        await client.publish(Outgoing(Ticket(number=2), event="ticket.closed"))
        assert await seen.some(2) == Counter([("hearer", 2), ("teller", 2)])

        async def ignored_one() -> bool:
            labels = {"agent": "teller", "outcome": "ignored"}
            registry = client.telemetry.metrics.registry
            return registry.get_sample_value("amqp_agents_deliveries_total", labels) == 1

        await until(ignored_one, "its own event to be counted as ignored")
        await everything_settled(client, "teller", "hearer")
    assert seen.over
