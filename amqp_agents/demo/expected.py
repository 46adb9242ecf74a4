"""What must have happened by the end of the demo, each a question to the journal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amqp_agents.observability import Entry
from amqp_agents.protocol import AgentMessage
from amqp_agents.topology.names import dead_letter_queue

RETRY_SECONDS = 1.0
Entries = Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Expected:
    """One thing that must have happened, in words and as a check."""

    what: str
    happened: Callable[[Entries], bool]


def by_messages() -> list[Expected]:
    """Return everything the journal alone can prove."""
    return [
        Expected("support_agent took the event ticket.received", _received),
        Expected("the review request named confirmed facts, missing facts, evidence", _asked),
        Expected("quality_agent blocked the promise until the fact is known", _blocked),
        Expected("an agent that nobody runs failed at once, not by a timeout", _unreachable),
        Expected("the broker brought the failed request back after 1 s", _retried),
        Expected("execution_agent then answered with the missing fact", _collected),
        Expected("a malformed action request was refused and told so", _refused),
        Expected("the preview of the action reached approval_agent", _previewed),
        Expected("approval_agent denied it, and support_agent was told", _denied),
        Expected("the final reply promises nothing", _promised_nothing),
        Expected("the three others heard ticket.closed", _closed),
    ]


def dead_letter_kept(headers: Mapping[str, Any] | None) -> Expected:
    """Return what the dead-letter queue itself must show."""
    found = headers is not None and headers.get("aa-fault-code") == "INVALID_PAYLOAD"
    queue = dead_letter_queue("execution_agent")
    return Expected(f"the refused message rests in {queue} with its reason", lambda entries: found)


def malformed(entries: Entries) -> AgentMessage | None:
    """Return the message that was dead-lettered."""
    return next((e.message for e in entries if e.what == "dead-lettered"), None)


def _sent(entries: Entries, intent: str, kind: str) -> Iterator[Entry]:
    for entry in entries:
        if entry.what == "sent" and (entry.message.intent, entry.message.type) == (intent, kind):
            yield entry


def _payload(entries: Entries, intent: str, kind: str) -> dict[str, Any]:
    entry = next(_sent(entries, intent, kind), None)
    return {} if entry is None else entry.message.payload


def _takers(entries: Entries, intent: str) -> set[str]:
    return {e.by for e in entries if e.what == "handled" and e.message.intent == intent}


def _received(entries: Entries) -> bool:
    return "support_agent" in _takers(entries, "ticket.received")


def _asked(entries: Entries) -> bool:
    asked = _payload(entries, "review_reply_risk", "task.request")
    wanted = ("confirmed_facts", "missing_facts", "evidence_refs", "required_output_schema")
    return all(asked.get(name) for name in wanted)


def _blocked(entries: Entries) -> bool:
    verdict = _payload(entries, "review_reply_risk", "task.result")
    forbidden = verdict.get("forbidden_next_actions", [])
    return bool(verdict.get("blocking_issues")) and "promise_coupon" in forbidden


def _unreachable(entries: Entries) -> bool:
    told = _payload(entries, "facts.collected", "event").get("unreachable", [])
    return [(one["error"], one["seconds"] < 1) for one in told] == [
        ("UnroutableMessageError", True)
    ]


def _retried(entries: Entries) -> bool:
    failed = [e for e in entries if e.what == "retried" and e.by == "execution_agent"]
    answers = list(_sent(entries, "collect_missing_fact", "task.result"))
    if len(failed) != 1 or not answers:
        return False
    # The delay is counted by the broker from the copy's arrival, a moment before the entry.
    return answers[0].at - failed[0].at > RETRY_SECONDS * 0.8


def _collected(entries: Entries) -> bool:
    asked = _payload(entries, "collect_missing_fact", "task.request")
    fact = _payload(entries, "collect_missing_fact", "task.result")
    return "promise_coupon" in asked.get("blocks", []) and bool(fact.get("value"))


def _refused(entries: Entries) -> bool:
    told = _payload(entries, "create_coupon", "task.error")
    kept = malformed(entries)
    return told.get("code") == "INVALID_PAYLOAD" and kept is not None


def _previewed(entries: Entries) -> bool:
    preview = _payload(entries, "approve_action", "action.preview")
    return bool(preview) and "approval_agent" in _takers(entries, "approve_action")


def _denied(entries: Entries) -> bool:
    decision = _payload(entries, "approval.decided", "approval.decision")
    told = "support_agent" in _takers(entries, "approval.decided")
    return decision.get("decision") == "denied" and told


def _promised_nothing(entries: Entries) -> bool:
    return _payload(entries, "final_reply.created", "event").get("promises") == []


def _closed(entries: Entries) -> bool:
    others = {"quality_agent", "execution_agent", "approval_agent"}
    return _takers(entries, "ticket.closed") == others
