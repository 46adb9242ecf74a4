import pytest
from pydantic import ValidationError

from amqp_agents.protocol.payloads import (
    ActionPreview,
    ActionResult,
    ApprovalDecision,
    ReviewResult,
    TaskRequest,
    TaskResult,
)


def test_a_request_may_hold_nothing_but_a_goal() -> None:
    assert TaskRequest(goal="collect evidence").confirmed_facts == []


def test_fields_of_a_later_version_are_kept() -> None:
    result = TaskResult.model_validate({"confidence": 1, "tone": "calm"})
    assert result.model_dump(exclude_unset=True) == {"confidence": 1.0, "tone": "calm"}


def test_a_risk_level_that_nobody_can_branch_on_is_refused() -> None:
    with pytest.raises(ValidationError):
        ReviewResult.model_validate({"risk_level": "cosmic"})
    with pytest.raises(ValidationError):
        ReviewResult.model_validate({"review_summary": "fine"})


@pytest.mark.parametrize("decision", ["granted", "denied"])
def test_a_yes_or_no_has_no_conditions(decision: str) -> None:
    ApprovalDecision.model_validate({"decision": decision})
    with pytest.raises(ValidationError, match="go together"):
        ApprovalDecision.model_validate({"decision": decision, "conditions": ["below 20"]})


def test_a_conditional_yes_names_its_conditions() -> None:
    granted = {"decision": "granted_with_conditions", "conditions": ["below 20"]}
    assert ApprovalDecision.model_validate(granted).conditions == ["below 20"]
    with pytest.raises(ValidationError, match="go together"):
        ApprovalDecision.model_validate({"decision": "granted_with_conditions"})


def test_an_action_is_shown_before_and_told_after() -> None:
    preview = ActionPreview(action_type="refund", risk_level="high", amount=12_000)
    result = ActionResult(action_type=preview.action_type, status="failed", follow_up_required=True)
    assert not result.compensation_required
