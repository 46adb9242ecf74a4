from typing import Any

from amqp_agents.observability import Entry, MemoryJournal
from amqp_agents.protocol import AgentMessage


def entry(at: float, **fields: Any) -> Entry:
    return Entry(at, "sent", "a", AgentMessage(sender="a", type="event", **fields))


def test_a_chain_is_one_trace_in_the_order_of_time() -> None:
    journal = MemoryJournal()
    for at, trace in ((3.0, "t"), (1.0, "t"), (2.0, "other")):
        journal.record(entry(at, trace_id=trace))
    assert [one.at for one in journal.chain("t")] == [1.0, 3.0]
    assert journal.chain("unknown") == []


def test_what_happened_at_one_time_stays_in_the_order_it_was_told() -> None:
    journal = MemoryJournal()
    for text in ("first", "second", "third"):
        journal.record(entry(1.0, trace_id="t", intent=text))
    assert [one.message.intent for one in journal.chain("t")] == ["first", "second", "third"]


def test_only_the_last_entries_are_kept() -> None:
    journal = MemoryJournal(capacity=2)
    for at in (1.0, 2.0, 3.0):
        journal.record(entry(at, trace_id="t"))
    assert [one.at for one in journal.chain("t")] == [2.0, 3.0]
