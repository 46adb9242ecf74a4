"""Payloads for work between agents: facts, requests, results, actions and approvals.

Readers keep fields they do not know. A value outside a closed set (a risk level, a decision)
is refused: what decides about an action must not be guessed.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from amqp_agents.protocol.fields import Moment

RiskLevel = Literal["low", "medium", "high"]


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)


class ConfirmedFact(_Payload):
    """Something that is known, where from and since when: not an opinion."""

    key: str
    value: Any
    source: str
    observed_at: Moment | None = None


class ProposedAction(_Payload):
    """Something that could be done, not yet allowed."""

    action: str
    risk_level: RiskLevel | None = None


class BlockingIssue(_Payload):
    """Why the work cannot go on; `code` is for programs, `message` for people."""

    code: str
    message: str


class TaskRequest(_Payload):
    """What is asked for, and everything the receiver may rely on.

    `required_output_schema` names the payload schema of the answer, `name.vN`.
    """

    goal: str | None = None
    draft_reply: str | None = None
    proposed_actions: list[ProposedAction] = Field(default_factory=list)
    confirmed_facts: list[ConfirmedFact] = Field(default_factory=list)
    evidence_refs: list[str] = Field(default_factory=list)
    missing_facts: list[str] = Field(default_factory=list)
    required_output_schema: str | None = None


class TaskResult(_Payload):
    """What follows from the work: what may be done next, what must not, what is missing."""

    risk_level: RiskLevel | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    blocking_issues: list[BlockingIssue] = Field(default_factory=list)
    allowed_next_actions: list[str] = Field(default_factory=list)
    forbidden_next_actions: list[str] = Field(default_factory=list)
    missing_facts: list[str] = Field(default_factory=list)
    evidence_refs: list[str] = Field(default_factory=list)


class ReviewResult(TaskResult):
    """The judgement of a draft or a plan; it always says how risky it is."""

    risk_level: RiskLevel
    review_summary: str | None = None


class MissingFactRequest(_Payload):
    """A fact without which nobody can decide; the actions in `blocks` wait for it."""

    missing_fact: str
    reason: str
    preferred_tool: str | None = None
    blocks: list[str] = Field(default_factory=list)


class FactInvalidated(_Payload):
    """A fact has changed, so what was concluded from it no longer holds."""

    fact_key: str
    old_value: Any = None
    new_value: Any = None
    invalidates_messages: list[str] = Field(default_factory=list)
    required_action: str | None = None


class TaskTimedOut(_Payload):
    """Nobody answered in time; `fallback` names the way that is taken instead."""

    task_id: str
    waiting_for: str
    elapsed_ms: Annotated[int, Field(ge=0)]
    fallback: str | None = None


class TaskCancelled(_Payload):
    """A task is no longer wanted: outdated, in conflict, or not needed."""

    task_id: str
    reason: str


class ActionPreview(_Payload):
    """A side effect before it happens, for those who may object.

    Units: `amount` in the smallest unit of its currency.
    """

    action_type: str
    risk_level: RiskLevel
    proposed_action: ProposedAction | None = None
    amount: int | None = None
    impact_preview: str | dict[str, Any] | None = None
    evidence_refs: list[str] = Field(default_factory=list)


class ActionResult(_Payload):
    """A side effect after it was tried."""

    action_type: str
    status: Literal["succeeded", "failed", "denied"]
    result: dict[str, Any] = Field(default_factory=dict)
    compensation_required: bool = False
    follow_up_required: bool = False
    evidence_refs: list[str] = Field(default_factory=list)


class Decision(StrEnum):
    """How an approval can end."""

    GRANTED = "granted"
    DENIED = "denied"
    GRANTED_WITH_CONDITIONS = "granted_with_conditions"


class ApprovalDecision(_Payload):
    """A yes, a no, or a yes that holds only under conditions.

    Conditions stand with `granted_with_conditions` and nowhere else, so that who looks at
    the decision alone never overlooks them.
    """

    decision: Decision
    conditions: list[str] = Field(default_factory=list)
    reason: str | None = None

    @model_validator(mode="after")
    def _conditions_are_announced(self) -> Self:
        conditional = self.decision is Decision.GRANTED_WITH_CONDITIONS
        if conditional != bool(self.conditions):
            raise ValueError(f"{Decision.GRANTED_WITH_CONDITIONS} and conditions go together")
        return self
