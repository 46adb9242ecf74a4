"""The chain of one trace, as rows and as a sequence diagram."""

import re

from amqp_agents.observability.chain import chain_table, mermaid_sequence
from amqp_agents.observability.journal import Entry
from amqp_agents.protocol import AgentMessage

ARROW = re.compile(r"    p\d+(->>|-->>|-\)|-x)p\d+: .+")
NOTE = re.compile(r"    Note over p\d+: .+")
PARTICIPANT = re.compile(r"    participant (p\d+) as .+")


def request(**fields):
    given = {"sender": "support_agent", "recipient": "quality_agent", "message_type": "request"}
    return AgentMessage(**{**given, "intent": "review", **fields})


def event(**fields):
    return AgentMessage(**{"sender": "desk", "message_type": "event", **fields})


def arrows(text):
    return [line.strip() for line in text.splitlines() if ARROW.fullmatch(line)]


def test_nothing_journaled_is_no_rows_and_an_empty_diagram():
    assert chain_table([]) == []
    assert mermaid_sequence([]) == "sequenceDiagram"


def test_a_row_tells_who_sent_what_to_whom_and_what_became_of_it():
    ask = request()
    answer = ask.reply({}, sender="quality_agent")
    rows = chain_table(
        [
            Entry(10.0, "sent", "support_agent", ask),
            Entry(10.5, "retried", "quality_agent", ask, "attempt 1, again in 1 s: down"),
            Entry(11.5, "sent", "quality_agent", answer),
            Entry(11.6, "handled", "quality_agent", ask),
        ]
    )
    assert [(row.number, row.type, row.caused_by) for row in rows] == [
        (1, "task.request", None),
        (2, "task.result", 1),
    ]
    assert rows[0].outcomes == (
        "retried by quality_agent: attempt 1, again in 1 s: down",
        "handled by quality_agent",
    )
    assert (rows[1].sender, rows[1].recipients) == ("quality_agent", ("support_agent",))
    assert [row.seconds for row in rows] == [0.0, 1.5]


def test_an_answer_journaled_before_its_request_stands_behind_it():
    ask = request()
    answer = ask.reply({}, sender="quality_agent")
    entries = [
        Entry(10.0, "sent", "quality_agent", answer),
        Entry(10.1, "sent", "support_agent", ask),
    ]
    rows = chain_table(entries)
    assert [row.message_id for row in rows] == [ask.message_id, answer.message_id]
    assert [row.seconds for row in rows] == [0.0, 0.0]


def test_an_event_goes_to_everybody_who_took_it_and_to_nobody_who_ignored_it():
    closed = event(intent="ticket.closed")
    entries = [
        Entry(1.0, "sent", "desk", closed),
        Entry(1.1, "handled", "quality_agent", closed),
        Entry(1.2, "ignored", "idle_agent", closed, "filtered out by where="),
        Entry(1.3, "handled", "approval_agent", closed),
    ]
    (row,) = chain_table(entries)
    assert row.recipients == ("quality_agent", "approval_agent")
    assert arrows(mermaid_sequence(entries)) == [
        "p1-)p2: 1. event ticket.closed",
        "p1-)p3: 1. event ticket.closed",
    ]


def test_an_event_nobody_took_is_a_note():
    text = mermaid_sequence([Entry(1.0, "sent", "desk", event(intent="draft.created"))])
    assert "    Note over p1: 1. event draft.created (nobody took it)" in text.splitlines()


def test_requests_are_solid_answers_dashed_retries_notes_and_dead_letters_crosses():
    ask = request()
    refusal = ask.reply({}, sender="quality_agent", error=True)
    text = mermaid_sequence(
        [
            Entry(1.0, "sent", "support_agent", ask),
            Entry(1.1, "retried", "quality_agent", ask, "attempt 1, again in 1 s: down"),
            Entry(2.1, "sent", "quality_agent", refusal),
            Entry(2.2, "dead-lettered", "quality_agent", ask, "UNKNOWN: down"),
        ]
    )
    assert text.splitlines() == [
        "sequenceDiagram",
        "    participant p1 as support_agent",
        "    participant p2 as quality_agent",
        "    participant p3 as agent.quality_agent.dlq",
        "    p1->>p2: 1. task.request review",
        "    Note over p2: retried, attempt 1, again in 1 s: down",
        "    p2-xp3: dead-lettered, UNKNOWN: down",
        "    p2-->>p1: 2. task.error review",
    ]


def test_participants_come_in_order_of_appearance():
    first = event(sender="zoe", intent="a.b")
    second = event(sender="adam", intent="a.c")
    text = mermaid_sequence([Entry(1.0, "sent", "zoe", first), Entry(2.0, "sent", "adam", second)])
    assert [line.split(" as ")[1] for line in text.splitlines() if " as " in line] == [
        "zoe",
        "adam",
    ]


def test_labels_cannot_break_the_diagram():
    ask = request(sender="end", recipient="my-agent", intent='x; #1 "y"\n%% p1->>p2: <b>')
    text = mermaid_sequence(
        [
            Entry(1.0, "sent", "end", ask),
            Entry(1.1, "dead-lettered", "my-agent", ask, "UNKNOWN: a\nb; " + "long " * 100),
        ]
    )
    first, *rest = text.splitlines()
    assert first == "sequenceDiagram"
    assert len(rest) == 5
    for line in rest:
        assert PARTICIPANT.fullmatch(line) or ARROW.fullmatch(line) or NOTE.fullmatch(line)
        label = line.split(": ", 1)[-1]
        assert not set('";<>%') & set(re.sub(r"#\w+;", "", label))
        assert "#" not in re.sub(r"#\w+;", "", label)
    assert rest[-1].endswith("…")


def test_messages_that_name_each_other_as_their_cause_are_each_told_once():
    one = event(intent="a.b", message_id="1", causality={"parent_message_id": "2"})
    two = event(intent="a.c", message_id="2", causality={"parent_message_id": "1"})
    rows = chain_table([Entry(1.0, "sent", "desk", one), Entry(2.0, "sent", "desk", two)])
    assert sorted(row.message_id for row in rows) == ["1", "2"]


def test_a_message_to_an_agent_nobody_declared_is_drawn_as_a_cross() -> None:
    ask = AgentMessage(sender="a", recipient="nobody", message_type="request", intent="x")
    entries = [Entry(1.0, "unroutable", "a", ask, "no such agent")]

    (row,) = chain_table(entries)

    assert (row.recipients, row.outcomes) == (("nobody",), ("unroutable: no such agent",))
    assert "p1-xp2: 1. task.request x (unroutable)" in mermaid_sequence(entries)
