import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.json_values import MAX_DEPTH, check_json


class Review(BaseModel):
    risk: str


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({"scores": [0, 1, 2, float("nan")]}, "payload.scores[3] is nan"),
        ({"a": {"b": float("-inf")}}, "payload.a.b is -inf"),
        ({"a": "x\ud800"}, "payload.a holds half a surrogate pair"),
        ({"a": {"\udfff": 1}}, "payload.a holds half a surrogate pair"),
        ({"a": {1: "x"}}, "payload.a has the key 1 of type int"),
        ({None: 1}, "payload has the key None of type NoneType"),
        ({True: 1}, "payload has the key True of type bool"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "payload.at is a datetime"),
        ({"price": Decimal(1)}, "payload.price is a Decimal"),
        ({"raw": b"x"}, "payload.raw is a bytes"),
        ({"tags": {"a"}}, "payload.tags is a set"),
        ({"id": uuid.UUID(int=0)}, "payload.id is a UUID"),
        ({"review": Review(risk="low")}, "payload.review is a Review"),
        ({"n": [2**5000]}, "payload.n[0] is an integer of more than 4096 bits"),
        (object(), "payload is a object"),
    ],
)
def test_what_json_cannot_carry_is_named_with_its_place(payload: Any, sentence: str) -> None:
    with pytest.raises(InvalidPayloadError) as caught:
        check_json(payload, at="payload")
    assert str(caught.value).startswith(sentence)


def test_long_places_are_cut_and_remain_text() -> None:
    with pytest.raises(InvalidPayloadError) as caught:
        check_json({"k" * 500: {"\ud800": [{"b" * 500: {"x" * 70: b""}}]}}, at="payload")
    assert len(str(caught.value)) < 400
    str(caught.value).encode()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_a_limit_far_from_the_interpreter_s() -> None:
    assert check_json(nested(MAX_DEPTH), at="payload")
    for depth in (MAX_DEPTH + 1, 50_000):
        with pytest.raises(InvalidPayloadError, match="nests deeper than 128 levels"):
            check_json(nested(depth), at="payload")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"é": "😀", "n": [1, -5, 2**80, True, None, 0.5, 123456.789]}, True),
        (1.0, False),
        (0.0, False),
        (1e-5, False),
        (1e16, False),
        ({"\U0001f600": 1, "\uff21": 2}, False),
    ],
)
def test_it_knows_when_sorted_json_is_canonical(value: Any, plain: bool) -> None:
    assert check_json(value, at="") is plain
