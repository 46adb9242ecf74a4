import json
import random
from enum import IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, given

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.digest import DIGEST_SCHEME, canonical_json, payload_digest
from tests.unit.protocol.strategies import payloads, values

# Another language that follows the scheme finds the same digests for the same JSON texts.
VECTORS = [
    (
        "{}",
        "{}",
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    ),
    (
        '{"goal": "collect evidence"}',
        '{"goal":"collect evidence"}',
        "3b3d2b022089bba54cd5817f45a78850b9c1b89438655da751d1565121836478",
    ),
    (
        '{"b": 1, "a": 1.0}',
        '{"a":1,"b":1}',
        "4dad51ac41eb73862fce375fae85ba13711fd19f1b26d8e4b1f9fa405c3d5adf",
    ),
    (
        "[333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001]",
        "[333333333.3333333,1e+30,4.5,0.002,1e-27]",
        "7c6bc86d861387d823ae596b79ca0b26567dddc22a77acb1f4e06d441f555adf",
    ),
    (
        "[1e21, 1e-7, 1e-6, -0.0, 0.1, 100000000000000000000.0]",
        "[1e+21,1e-7,0.000001,0,0.1,100000000000000000000]",
        "0fe42aca54192086c69c8c9106b885ff68b81be404b541f73402a7a6382c51aa",
    ),
    (
        '{"\\u20ac":1,"\\r":2,"\\ufb33":3,"1":4,"\\ud83d\\ude00":5,"\\u0080":6,"\\u00f6":7}',
        '{"\\r":2,"1":4,"\x80":6,"\xf6":7,"\u20ac":1,"\U0001f600":5,"\ufb33":3}',
        "0d922ac8e15a6d17d5d50fab064983e86009ebae7b5998cbfc4ed172e6ff74a9",
    ),
    (
        '{"text": "\\u20ac$\\u000f\\nA\\u0027B\\"\\\\ \u8ba2 \xe9 e\\u0301 \\u2028 \\u007f"}',
        '{"text":"\u20ac$\\u000f\\nA\'B\\"\\\\ \u8ba2 \xe9 e\u0301 \u2028 \x7f"}',
        "4afa7c00b388caf0031b29e65ca95dddc692d6eae466a74c39597b63e88a9fb8",
    ),
    (
        '{"id": 9007199254740993, "neg": -1152921504606846976}',
        '{"id":9007199254740993,"neg":-1152921504606846976}',
        "a94c0a1d646300c2c811e790345f1decebba751f4b8525851ab947dff08c562e",
    ),
    (
        '{"nested": {"z": [true, false, null, {}], "a": [[]]}}',
        '{"nested":{"a":[[]],"z":[true,false,null,{}]}}',
        "84c6cebe0d2dbfc26c9e1705bde1d3e995d765a48aa047bbb6e387a0ef37f13a",
    ),
]


def test_the_scheme_is_named() -> None:
    assert DIGEST_SCHEME == "jcs-bigint-sha256/1"


@pytest.mark.parametrize(("written", "canonical", "digest"), VECTORS)
def test_golden_vectors(written: str, canonical: str, digest: str) -> None:
    payload = json.loads(written)
    assert canonical_json(payload).decode() == canonical
    assert payload_digest(payload) == f"sha256:{digest}"


@given(values)
def test_what_rfc_8785_accepts_is_written_as_it_says(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        assume(False)
    assert canonical_json(value) == expected


@given(values)
def test_canonical_json_is_json_that_stays_as_it_is(value: Any) -> None:
    written = canonical_json(value)
    assert canonical_json(json.loads(written)) == written


@given(payloads)
def test_the_order_of_keys_changes_nothing(payload: dict[str, Any]) -> None:
    assert payload_digest(_shuffled(payload)) == payload_digest(payload)


@given(payloads)
def test_the_way_over_the_wire_changes_nothing(payload: dict[str, Any]) -> None:
    assert payload_digest(json.loads(json.dumps(payload))) == payload_digest(payload)


def test_big_integers_are_exact() -> None:
    assert payload_digest({"id": 2**60}) != payload_digest({"id": 2**60 + 1})
    assert canonical_json([-(2**64), 1.0, {"é": 2**53}]).decode() == (
        '[-18446744073709551616,1,{"é":9007199254740992}]'
    )


def test_values_that_json_writes_alike_are_alike() -> None:
    class Risk(StrEnum):
        HIGH = "high"

    class Level(IntEnum):
        ONE = 1

    assert canonical_json({Risk.HIGH: (Risk.HIGH, Level.ONE)}) == b'{"high":["high",1]}'


def _shuffled(value: Any) -> Any:
    if isinstance(value, list):
        return [_shuffled(item) for item in value]
    if isinstance(value, dict):
        keys = list(value)
        random.Random(len(keys)).shuffle(keys)
        return {key: _shuffled(value[key]) for key in reversed(keys)}
    return value


def test_a_payload_that_contains_itself_is_refused() -> None:
    payload: dict[str, Any] = {}
    payload["self"] = [payload]
    with pytest.raises(InvalidPayloadError, match=r"^payload\.self\[0\]\.self.* nests deeper"):
        payload_digest(payload)
