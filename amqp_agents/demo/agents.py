"""The four agents of the ticket workflow, written as a user would write them."""

import time
from typing import Any

from amqp_agents import (
    Agent,
    Context,
    NonRetryableError,
    Outgoing,
    RetryPolicy,
    UnroutableMessageError,
)
from amqp_agents.demo.history import CompensationHistory
from amqp_agents.demo.payloads import Closed, Coupon, CouponOrder, Ticket
from amqp_agents.protocol.payloads import (
    ActionPreview,
    ApprovalDecision,
    BlockingIssue,
    ConfirmedFact,
    Decision,
    MissingFactRequest,
    ProposedAction,
    ReviewResult,
    TaskRequest,
)

REFS = ["policy:shipping_delay:v18", "ticket_note:T4821:2026-06-22"]
HISTORY_FACT = "compensation_history"
REVIEW_SCHEMA = "quality_review_result.v1"

support = Agent("support_agent", role="support", capabilities=["draft_reply"])
quality = Agent("quality_agent", role="quality", capabilities=["review_reply_risk"])
execution = Agent(
    "execution_agent",
    role="executor",
    capabilities=["collect_missing_fact", "create_coupon"],
    retry=RetryPolicy(max_attempts=3, base_seconds=1.0),
)
approval = Agent("approval_agent", role="approver", capabilities=["approve_action"])
history = CompensationHistory()


@support.on_event("ticket.received")
async def receive(ticket: Ticket, context: Context) -> None:
    """Draft a reply, have it reviewed, collect what is missing, ask for permission."""
    facts = [ConfirmedFact(key="delay_days", value=4, source="order_api")]
    unreachable = await _ask_for_loyalty(ticket, context)
    await _announce(context, "facts.collected", facts=["delay_days"], unreachable=unreachable)
    draft = "Your order is 4 days late. We are checking whether you are due compensation."
    await _announce(context, "draft.created", draft_reply=draft)
    question = TaskRequest(
        goal="may this reply be sent?",
        draft_reply=draft,
        proposed_actions=[ProposedAction(action="promise_coupon", risk_level="medium")],
        confirmed_facts=facts,
        missing_facts=[HISTORY_FACT],
        evidence_refs=REFS,
        required_output_schema=REVIEW_SCHEMA,
    )
    verdict = await context.request(review_reply_risk, question)
    if "promise_coupon" in verdict.forbidden_next_actions:
        facts.append(await _collect(verdict, context))
    await _try_without_permission(ticket, context)
    await context.publish(
        Outgoing(
            _preview(facts),
            to=approval.name,
            intent="approve_action",
            type="action.preview",
            evidence_refs=REFS,
        )
    )


@quality.on("review_reply_risk", payload_schema=REVIEW_SCHEMA)
async def review_reply_risk(draft: TaskRequest) -> ReviewResult:
    """Block every promise that rests on a fact nobody has confirmed."""
    if HISTORY_FACT not in draft.missing_facts:
        return ReviewResult(risk_level="low", allowed_next_actions=["send_reply"])
    issue = BlockingIssue(
        code="MISSING_COMPENSATION_HISTORY",
        message="nobody knows whether the customer was compensated before",
    )
    return ReviewResult(
        risk_level="medium",
        blocking_issues=[issue],
        allowed_next_actions=["query_compensation_history"],
        forbidden_next_actions=["promise_coupon", "close_ticket"],
        missing_facts=[HISTORY_FACT],
        review_summary="calm the customer; promise nothing yet",
    )


@execution.on("collect_missing_fact")
async def collect_missing_fact(wanted: MissingFactRequest, context: Context) -> ConfirmedFact:
    """Ask the history service, which fails the first time it is asked about a ticket."""
    found = history.of(context.message.trace_id)
    return ConfirmedFact(key=wanted.missing_fact, value=found, source="compensation_api")


@execution.on("create_coupon")
async def create_coupon(order: CouponOrder) -> Coupon:
    """Create a coupon; a payload that is no order never gets here."""
    return Coupon(code=f"{order.ticket_id}-{order.amount_cents}")


@approval.on("approve_action")
async def approve_action(preview: ActionPreview, context: Context) -> None:
    """Decide about an action before it happens, and send the decision to who asked."""
    impact = preview.impact_preview if isinstance(preview.impact_preview, dict) else {}
    denied = bool(impact.get("already_granted_cents"))
    decision = ApprovalDecision(
        decision=Decision.DENIED if denied else Decision.GRANTED,
        reason="compensated before" if denied else None,
    )
    await context.publish(
        Outgoing(
            decision,
            to=context.message.sender.agent_id,
            intent="approval.decided",
            type="approval.decision",
        )
    )


@support.on("approval.decided")
async def answer_customer(decision: ApprovalDecision, context: Context) -> None:
    """Write the final reply; it promises only what was granted."""
    granted = decision.decision is Decision.GRANTED
    reply = "Your order is 4 days late; we are sorry. " + (
        "You get a coupon." if granted else "The delay was already made good on 20 June."
    )
    promises = ["coupon"] if granted else []
    final = Outgoing({"reply": reply, "promises": promises}, event="final_reply.created")
    await context.publish(final)
    ticket_id = context.message.context_id or ""
    closed = Closed(ticket_id=ticket_id, resolution="answered, nothing promised")
    await context.publish(Outgoing(closed, broadcast="ticket.closed"))


async def forget(closed: Closed) -> None:
    """Drop what is open for the ticket."""


for _agent in (quality, execution, approval):
    _agent.on_event("ticket.closed")(forget)


async def _announce(context: Context, event: str, **payload: Any) -> None:
    """A stage of the ticket is news at once, whatever becomes of the rest."""
    await context.publish(Outgoing(payload, event=event), immediately=True)


async def _ask_for_loyalty(ticket: Ticket, context: Context) -> list[dict[str, Any]]:
    """Ask an agent that nobody runs: the answer is an error at once, not a timeout."""
    started = time.monotonic()
    try:
        await context.request("loyalty_agent", {"ticket_id": ticket.ticket_id})
    except UnroutableMessageError as error:
        seconds = round(time.monotonic() - started, 3)
        return [{"agent": "loyalty_agent", "error": type(error).__name__, "seconds": seconds}]
    return []


async def _collect(verdict: ReviewResult, context: Context) -> ConfirmedFact:
    question = MissingFactRequest(
        missing_fact=HISTORY_FACT,
        reason="before a promise it must be known whether one was kept already",
        preferred_tool=verdict.allowed_next_actions[0],
        blocks=verdict.forbidden_next_actions,
    )
    return await context.request(collect_missing_fact, question)


async def _try_without_permission(ticket: Ticket, context: Context) -> None:
    """Do what an eager model would: order the coupon in prose. It must not come to anything."""
    guess = {"ticket_id": ticket.ticket_id, "amount": "twenty yuan"}
    try:
        await context.request(execution.name, guess, intent="create_coupon")
    except NonRetryableError:
        return  # told why, and the dead letter keeps it for a person


def _preview(facts: list[ConfirmedFact]) -> ActionPreview:
    known = {fact.key: fact.value for fact in facts}
    return ActionPreview(
        action_type="coupon",
        risk_level="high",
        amount=2000,
        proposed_action=ProposedAction(action="promise_coupon", risk_level="high"),
        impact_preview={
            "already_granted_cents": known.get(HISTORY_FACT, {}).get("granted_cents", 0)
        },
        evidence_refs=REFS,
    )
