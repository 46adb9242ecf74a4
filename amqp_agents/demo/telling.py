"""Words for what happens: one short line per journal entry, and the tables at the end."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from amqp_agents.observability import Entry
from amqp_agents.observability.chain import Row
from amqp_agents.protocol import AgentMessage, MessageType

MAX_NOTE = 110


def tell(console: Console, entry: Entry) -> None:
    """Print what happened, if it is worth a line."""
    if line := line_of(entry):
        console.print(Padding(line, (0, 0, 0, 2), expand=False), highlight=False)


def line_of(entry: Entry) -> str | None:
    """Return what happened, in rich markup; None for what goes without saying."""
    message = entry.message
    if entry.what == "sent":
        return _sent(message)
    if entry.what == "retried":
        return f"[yellow]{entry.by} failed, the broker brings it back: {_short(entry.note)}[/]"
    if entry.what == "dead-lettered":
        return f"[red]dead-lettered by {entry.by}: {_short(entry.note)}[/]"
    if entry.what == "handled" and message.message_type is MessageType.BROADCAST:
        return f"[dim]{entry.by} heard {message.intent}[/]"
    return None


def show_chain(console: Console, rows: Sequence[Row]) -> None:
    """Print the messages of the ticket as a table."""
    table = Table(box=box.SIMPLE, title="The message chain of the ticket", title_justify="left")
    for name in ("#", "s", "message", "after", "what became of it"):
        table.add_column(name, overflow="fold")
    for row in rows:
        way = f"{row.sender} → {', '.join(row.recipients) or '…'}"
        cells = [
            str(row.number),
            f"{row.seconds:.2f}",
            f"{escape(row.type)} [bold]{escape(row.intent or '')}[/]\n[dim]{escape(way)}[/]",
            "" if row.caused_by is None else str(row.caused_by),
            escape(_became(row)),
        ]
        table.add_row(*cells)
    console.print(table)


def show_expected(console: Console, happened: Mapping[str, bool]) -> None:
    """Print what had to happen, and whether it did."""
    for what, did in happened.items():
        console.print(f"  {'[green]yes[/]' if did else '[bold red]NO [/]'} {escape(what)}")


def _sent(message: AgentMessage) -> str:
    sender = message.sender.agent_id
    told = _gist(message)
    tail = f": {_short(told)}" if told else ""
    match message.message_type:
        case MessageType.REQUEST:
            head = f"{sender} asks {message.recipient}: [bold]{message.intent}[/]"
        case MessageType.RESPONSE:
            head = f"{sender} answers {message.recipient}"
        case MessageType.ERROR:
            head = f"[red]{sender} refuses, and tells {message.recipient}[/]"
        case MessageType.DIRECT:
            head = f"{sender} sends {message.recipient} [bold]{message.type}[/]"
        case MessageType.BROADCAST:
            head = f"{sender} tells everybody: [bold]{message.intent}[/]"
        case _:
            head = f"{sender} announces [bold]{message.intent}[/]"
    return head + tail


def _gist(message: AgentMessage) -> str:
    """The fields of a payload that carry the story, those it has."""
    payload: dict[str, Any] = message.payload
    facts = payload.get("confirmed_facts") or []
    told = {
        "": payload.get("text"),
        "confirmed": ", ".join(f"{fact['key']}={fact['value']}" for fact in facts),
        "missing": ", ".join(payload.get("missing_facts") or []),
        "blocked by": ", ".join(i["code"] for i in payload.get("blocking_issues") or []),
        "forbidden": ", ".join(payload.get("forbidden_next_actions") or []),
        "until then forbidden": ", ".join(payload.get("blocks") or []),
        "not reachable": _unreachable(payload.get("unreachable") or []),
        "found": _pairs(payload.get("value")),
        "amount": payload.get("amount"),
        "decision": payload.get("decision"),
        "reason": payload.get("reason") if "decision" in payload else None,
        "code": payload.get("code") if message.message_type is MessageType.ERROR else None,
        "reply": payload.get("reply"),
    }
    return "; ".join(f"{name} {value}".strip() for name, value in told.items() if value)


def _pairs(value: Any) -> str:
    fields = value if isinstance(value, dict) else {}
    return ", ".join(f"{name}={field}" for name, field in fields.items())


def _unreachable(agents: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{a['agent']} ({a['error']} after {a['seconds']} s)" for a in agents)


def _became(row: Row) -> str:
    if not row.recipients:
        return "nobody took it"
    return "\n".join(_short(outcome) for outcome in row.outcomes)


def _short(text: str) -> str:
    cut = text if len(text) <= MAX_NOTE else text[: MAX_NOTE - 1] + "…"
    return escape(cut)
