"""The message chain of one trace, as rows for a table and as a Mermaid sequence diagram. Pure.

Both are made from journal entries alone: what nobody sent or settled is in neither.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from amqp_agents.observability.journal import Entry
from amqp_agents.protocol import AgentMessage, MessageType
from amqp_agents.topology.names import dead_letter_queue

SENT, RETRIED, DEAD_LETTERED = "sent", "retried", "dead-lettered"
UNROUTABLE = "unroutable"
REPLIES = (MessageType.RESPONSE, MessageType.ERROR)
LABEL_CHARACTERS = 120

_ENTITIES = {"%": "#37;", "#": "#35;", ";": "#59;", '"': "#quot;", "<": "#lt;", ">": "#gt;"}


@dataclass(frozen=True, slots=True)
class Row:
    """One message of a chain and everything that became of it.

    `recipients` of an event are those who took it; `caused_by` is the number of the row it
    answers or follows from.

    Units: seconds since the chain began
    """

    number: int
    seconds: float
    message_id: str
    type: str
    intent: str | None
    sender: str
    recipients: tuple[str, ...]
    caused_by: int | None
    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Link:
    """One message with its entries; `at` never runs backwards along a chain."""

    number: int
    at: float
    message: AgentMessage
    entries: tuple[Entry, ...]

    @property
    def recipients(self) -> tuple[str, ...]:
        if self.message.recipient is not None:
            return (self.message.recipient.agent_id,)
        taken = (entry.by for entry in self.entries if entry.what not in (SENT, "ignored"))
        return tuple(dict.fromkeys(taken))


def chain_table(entries: Iterable[Entry]) -> list[Row]:
    """Return one row per message, causes before what they caused.

    >>> ask = AgentMessage(sender="a", recipient="b", message_type="request", intent="review")
    >>> row, = chain_table([Entry(5.0, "sent", "a", ask), Entry(5.5, "handled", "b", ask)])
    >>> row.number, row.type, row.sender, row.recipients, row.outcomes
    (1, 'task.request', 'a', ('b',), ('handled by b',))
    """
    links = _links(entries)
    numbers = {link.message.message_id: link.number for link in links}
    return [
        Row(
            number=link.number,
            seconds=round(link.at - links[0].at, 3),
            message_id=link.message.message_id,
            type=link.message.type,
            intent=link.message.intent,
            sender=link.message.sender.agent_id,
            recipients=link.recipients,
            caused_by=numbers.get(link.message.causality.parent_message_id or ""),
            outcomes=tuple(_outcome(entry) for entry in link.entries if entry.what != SENT),
        )
        for link in links
    ]


def mermaid_sequence(entries: Iterable[Entry]) -> str:
    """Return the chain as a Mermaid sequence diagram; arrows carry the numbers of the table.

    Requests and other addressed messages are solid, answers dashed, events open-headed, one
    arrow per agent that took them; a retry is a note, a dead letter a cross, and so is a message
    to an agent that nobody declared.

    >>> ask = AgentMessage(sender="a", recipient="b", message_type="request", intent="review")
    >>> print(mermaid_sequence([Entry(5.0, "sent", "a", ask)]))
    sequenceDiagram
        participant p1 as a
        participant p2 as b
        p1->>p2: 1. task.request review
    """
    links = _links(entries)
    cast: dict[str, str] = {}
    drawn = [(link.at, _arrows(link)) for link in links]
    drawn += [(_told_at(link, entry, links), _aside(entry)) for link, entry in _asides(links)]
    drawn.sort(key=lambda step: step[0])
    lines = [_line(step, cast) for _, steps in drawn for step in steps]
    people = [f"    participant {p} as {_label(name)}" for name, p in cast.items()]
    return "\n".join(["sequenceDiagram", *people, *lines])


_Step = tuple[str, str, str, str]  # from, arrow ("" for a note), to, label


def _arrows(link: _Link) -> list[_Step]:
    message = link.message
    sender = message.sender.agent_id
    label = f"{link.number}. {message.type} {message.intent or ''}".rstrip()
    if message.recipient is None and not link.recipients:
        return [(sender, "", "", f"{label} (nobody took it)")]
    arrow = "-->>" if message.message_type in REPLIES else "->>"
    if message.recipient is None:
        arrow = "-)"
    if any(entry.what == UNROUTABLE for entry in link.entries):
        arrow, label = "-x", f"{label} ({UNROUTABLE})"
    return [(sender, arrow, recipient, label) for recipient in link.recipients]


def _asides(links: Sequence[_Link]) -> list[tuple[_Link, Entry]]:
    wanted = (RETRIED, DEAD_LETTERED)
    return [(link, entry) for link in links for entry in link.entries if entry.what in wanted]


def _aside(entry: Entry) -> list[_Step]:
    label = f"{entry.what}, {entry.note}" if entry.note else entry.what
    if entry.what == DEAD_LETTERED:
        return [(entry.by, "-x", dead_letter_queue(entry.by), label)]
    return [(entry.by, "", "", label)]


def _told_at(link: _Link, entry: Entry, links: Sequence[_Link]) -> float:
    """When to draw it: after its message, and before the answer, which is sent last."""
    told = max(link.at, entry.at)
    answers = [
        other.at
        for other in links
        if other.message.causality.parent_message_id == link.message.message_id
        and other.message.message_type is MessageType.ERROR
    ]
    if entry.what == DEAD_LETTERED and answers:
        told = min(told, (link.at + min(answers)) / 2)
    return told


def _line(step: _Step, cast: dict[str, str]) -> str:
    source, arrow, target, label = step
    names = [source] if not arrow else [source, target]
    first, *rest = [cast.setdefault(name, f"p{len(cast) + 1}") for name in names]
    if not rest:
        return f"    Note over {first}: {_label(label)}"
    return f"    {first}{arrow}{rest[0]}: {_label(label)}"


def _label(text: str) -> str:
    """Return the text as Mermaid can take it in one line.

    >>> _label('a; "b" #1')
    'a#59; #quot;b#quot; #35;1'
    """
    line = re.sub(r"\s+", " ", text).strip()
    if len(line) > LABEL_CHARACTERS:
        line = line[: LABEL_CHARACTERS - 1] + "…"
    return "".join(_ENTITIES.get(character, character) for character in line)


def _outcome(entry: Entry) -> str:
    told = entry.what if entry.what == UNROUTABLE else f"{entry.what} by {entry.by}"
    return f"{told}: {entry.note}" if entry.note else told


def _links(entries: Iterable[Entry]) -> list[_Link]:
    """Return each message once; an answer may be journaled before what it answers."""
    known: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.at):
        known.setdefault(entry.message.message_id, []).append(entry)
    links: list[_Link] = []
    for of_one in _causes_first(known):
        at = next((entry.at for entry in of_one if entry.what == SENT), of_one[0].at)
        at = max(at, links[-1].at) if links else at
        links.append(_Link(len(links) + 1, at, of_one[0].message, tuple(of_one)))
    return links


def _causes_first(known: dict[str, list[Entry]]) -> Iterable[list[Entry]]:
    done: set[str] = set()
    for message_id in known:
        way = [message_id]
        while (parent := _parent(known[way[-1]])) in known and parent not in done:
            if parent in way:  # a circle: no sender makes one, a forged message may
                break
            way.append(parent)
        for step in reversed(way):
            if step not in done:
                done.add(step)
                yield known[step]


def _parent(of_one: Sequence[Entry]) -> str:
    return of_one[0].message.causality.parent_message_id or ""
