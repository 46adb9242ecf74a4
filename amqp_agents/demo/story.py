"""Playing the demo: one event in, the rest follows; then the proof and the pictures."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any
from uuid import uuid4

from rich.console import Console

from amqp_agents import AgentApp, AgentMessage
from amqp_agents.brokers.base import Broker
from amqp_agents.demo.agents import approval, execution, quality, support
from amqp_agents.demo.expected import by_messages, dead_letter_kept, malformed
from amqp_agents.demo.journal import TicketJournal
from amqp_agents.demo.telling import show_chain, show_expected, tell
from amqp_agents.observability import Entry
from amqp_agents.observability.chain import chain_table, mermaid_sequence
from amqp_agents.topology.names import dead_letter_queue

TICKET_ID = "T4821"
COMPLAINT = "My order is late again. Last time I was promised compensation; nothing came."
LIMIT_SECONDS = 12.0
LOOK_SECONDS = 3.0


async def run(url: str | None, *, console: Console, as_json: bool = False) -> int:
    """Play the ticket on RabbitMQ at `url`, or in memory; return 0 if all of it happened.

    Declares what it needs and leaves its one dead letter for a look with `amqp-agents dlq`.

    Raises: BrokerConnectionError, TopologyConflictError.
    """
    trace_id = f"trace_ticket_{TICKET_ID}_{uuid4().hex[:8]}"
    journal = TicketJournal(trace_id, tell=_nothing if as_json else partial(tell, console))
    app = AgentApp([support, quality, execution, approval], journal=journal)
    if not as_json:
        where = "the memory broker" if url is None else "RabbitMQ"
        console.print(f"[bold]Ticket {TICKET_ID} on {where}[/]")
    with _told_once():
        happened = await _play(app, journal, url)
    if as_json:
        _print_json(console, journal, happened)
    else:
        _print_all(console, journal, happened)
    return 0 if all(happened.values()) else 1


async def _play(app: AgentApp, journal: TicketJournal, url: str | None) -> dict[str, bool]:
    expected = by_messages()
    async with app.test(url, name="ticket_desk") as client:
        await client.publish(_complaint(journal.trace_id))
        await journal.until(
            lambda entries: all(one.happened(entries) for one in expected),
            limit_seconds=LIMIT_SECONDS,
        )
        expected.append(dead_letter_kept(await _dead_letter(client.broker, journal)))
    return {one.what: one.happened(journal.entries) for one in expected}


def _nothing(entry: Entry) -> None:
    """With --json only the result is printed."""


@contextmanager
def _told_once() -> Iterator[None]:
    """Without logging configured Python prints warnings itself, in the midst of the story."""
    logger, silent = logging.getLogger("amqp_agents"), logging.NullHandler()
    logger.addHandler(silent)
    try:
        yield
    finally:
        logger.removeHandler(silent)


def _complaint(trace_id: str) -> AgentMessage:
    return AgentMessage(
        sender="ticket_desk",
        type="event",
        intent="ticket.received",
        trace_id=trace_id,
        context_id=TICKET_ID,
        payload={"ticket_id": TICKET_ID, "text": COMPLAINT},
    )


async def _dead_letter(broker: Broker, journal: TicketJournal) -> dict[str, Any] | None:
    """Look for our message in the dead-letter queue, among what others left there."""
    message = malformed(journal.entries)
    if message is None:
        return None
    browser = await broker.browse(dead_letter_queue(execution.name))
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            while (lease := await browser.get()) is not None:
                headers = dict(lease.delivery.properties.headers)
                if headers.get("aa-message-id") == message.message_id:
                    return headers
    except TimeoutError:
        return None
    finally:
        await browser.close()
    return None


def _print_all(console: Console, journal: TicketJournal, happened: dict[str, bool]) -> None:
    console.print()
    show_chain(console, chain_table(journal.entries))
    console.print("\n[bold]The same as a Mermaid sequence diagram[/]\n")
    diagram = mermaid_sequence(journal.entries)
    console.print(diagram, markup=False, highlight=False, soft_wrap=True)
    console.print("\n[bold]What had to happen, read from the messages[/]")
    show_expected(console, happened)
    if not all(happened.values()):
        console.print(
            "[bold red]The demo is incomplete.[/] Does another process run these agents here? "
            "Then messages went to it: stop it, or use a vhost of its own."
        )


def _print_json(console: Console, journal: TicketJournal, happened: dict[str, bool]) -> None:
    told = {
        "trace_id": journal.trace_id,
        "happened": happened,
        "messages": [asdict(row) for row in chain_table(journal.entries)],
        "mermaid": mermaid_sequence(journal.entries),
    }
    text = json.dumps(told, ensure_ascii=False, indent=2)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
