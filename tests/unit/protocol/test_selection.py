from typing import Any

import pytest
from hypothesis import given

from amqp_agents.protocol import matches, project
from tests.unit.protocol.strategies import payloads


@pytest.mark.parametrize(
    ("where", "payload", "met"),
    [
        ({"risk": "high"}, {"risk": "high"}, True),
        ({"risk": "high"}, {"risk": "low"}, False),
        ({"risk": "high"}, {}, False),
        ({"risk": None}, {}, False),
        ({"risk": None}, {"risk": None}, True),
        ({"risk": ["high", "medium"]}, {"risk": "medium"}, True),
        ({"risk": []}, {"risk": "medium"}, False),
        ({"risk": ("high",)}, {"risk": "high"}, True),
        ({"flag": True}, {"flag": 1}, False),
        ({"flag": [1]}, {"flag": True}, False),
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 1}, {"n": "1"}, False),
        ({"order": {"id": 1}}, {"order": {"id": 1}}, True),
        ({"n_gte": 5}, {"n": 5}, True),
        ({"n_gt": 5}, {"n": 5}, False),
        ({"n_lte": 5}, {"n": 5}, True),
        ({"n_lt": 5}, {"n": 5}, False),
        ({"n_gt": 1, "n_lt": 3}, {"n": 2}, True),
        ({"n_gt": 1, "n_lt": 3}, {"n": 3}, False),
        ({"n_gte": 5}, {}, False),
        ({"n_gte": 0}, {"n": None}, False),
        ({"n_gte": 0}, {"n": True}, False),
        ({"n_gte": 0}, {"n": [1]}, False),
        ({"n_gte": 0}, {"n": float("nan")}, False),
        ({"at_gte": "2026-01-01"}, {"at": "2026-07-01"}, True),
        ({"at_gte": "2026-01-01"}, {"at": 2026}, False),
        ({"n_gte": [1]}, {"n": [1]}, False),
        ({"n": 1, "m": 2}, {"n": 1, "m": 3}, False),
    ],
)
def test_a_filter_is_never_met_by_accident(
    where: dict[str, Any], payload: dict[str, Any], met: bool
) -> None:
    assert matches(where, payload) is met


@given(payloads, payloads)
def test_any_filter_on_any_payload_answers(where: dict[str, Any], payload: dict[str, Any]) -> None:
    assert matches(where, payload) in (True, False)


@given(payloads)
def test_a_projection_never_shows_more_than_was_asked_for(payload: dict[str, Any]) -> None:
    fields = [*list(payload)[:2], "absent"]
    assert project(payload, fields) == {name: payload[name] for name in list(payload)[:2]}
