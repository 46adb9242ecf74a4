"""Tomorrow's message meets today's worker: what is new is kept, what is another is refused."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from amqp_agents import RetryPolicy, agent
from tests.cases.checks import bounded, canary, odd, settled, told
from tests.cases.stage import Place, Stage, Work, body_of, on_stage, until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]

EXTRA: dict[str, Any] = {
    "new top-level field": {"tenant": "eu"},
    "new object": {"routing_hints": {"a": [1, {"b": None}], "z": 1.0}},
    "new null": {"tenant": None},
    "new field in causality": {"causality": {"step_id": "s", "branch": "b"}},
    "new field in policy": {"policy": {"sensitivity": "high", "region": "eu"}},
    "new field in the payload": {"payload": {"n": 1, "colour": "red"}, "payload_digest": None},
    "new field in metadata": {"metadata": {"x": {"y": 1}}},
    "new name of any script": {"ключ": "значение"},
    "hundred new fields": {f"field_{n}": n for n in range(100)},
    "new big number": {"counter": 2**80},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(shared_place: Place) -> AsyncIterator[Stage]:
    @agent("work", concurrency=1)
    async def work(given: Work) -> None: ...

    @agent("failing", concurrency=1, retry=RetryPolicy(max_attempts=2, base_seconds=1))
    async def failing(given: Work) -> None:
        if given.n:
            raise ValueError("it always fails")

    async with on_stage(shared_place, work, failing) as stage:
        yield stage


def changed(name: str, n: int = 0, **fields: Any) -> tuple[bytes, str]:
    body, message_id = body_of(name, n)
    data = json.loads(body) | fields
    return json.dumps({k: v for k, v in data.items() if v is not ...}).encode(), message_id


async def handled(stage: Stage, **fields: Any) -> None:
    body, message_id = changed("work", **fields)
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body)
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)


async def refused(stage: Stage, code: str, have: str, want: str, **fields: Any) -> None:
    body, message_id = changed("work", **fields)
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body)
    await canary(stage, "work")
    resting = await settled(case, "dead")
    bounded(case)
    told(case, code)
    assert resting is not None
    headers = resting.properties.headers
    assert headers["aa-fault-code"] == code
    assert have in headers["aa-fault-message"]
    assert want in headers["aa-fault-message"]


@pytest.mark.parametrize("what", EXTRA)
async def test_unknown_fields_are_no_reason_to_refuse(stage: Stage, what: str) -> None:
    await handled(stage, **EXTRA[what])


@pytest.mark.parametrize("what", EXTRA)
async def test_unknown_fields_are_still_there_after_a_retry_and_in_the_dead_letter(
    stage: Stage, what: str
) -> None:
    fields = dict(EXTRA[what])
    payload = {"n": 1} | fields.pop("payload", {})
    body, message_id = changed("failing", 1, **(fields | {"payload": payload}))
    case = odd(stage, "failing", body, message_id)
    await stage.put("failing", body)
    await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up")
    resting = await settled(case, "dead")
    bounded(case, 2)
    assert stage.broker.deliveries[body] == 2  # the retry brought the same bytes
    assert resting is not None
    assert resting.body == body


@pytest.mark.parametrize("field", ["schema_version", "protocol_version"])
@pytest.mark.parametrize("version", ["1", "1.0", "1.1", "1.99", "1.0.7", None, ...])
async def test_the_same_major_version_is_handled(stage: Stage, field: str, version: Any) -> None:
    await handled(stage, **{field: version})


@pytest.mark.parametrize("field", ["schema_version", "protocol_version"])
@pytest.mark.parametrize("version", ["2.0", "2", "0.9", "10.0", "banana", "", "v1", "1.x", "-1"])
async def test_another_version_is_a_mismatch_that_says_have_and_want(
    stage: Stage, field: str, version: str
) -> None:
    await refused(stage, "SCHEMA_MISMATCH", repr(version), "1.0", **{field: version})


@pytest.mark.parametrize("name", ["telemetry", "REQUEST", "", "request ", "stream.chunk"])
async def test_an_unknown_message_type_is_a_mismatch(stage: Stage, name: str) -> None:
    await refused(stage, "SCHEMA_MISMATCH", repr(name), "request", message_type=name)


@pytest.mark.parametrize("field", ["schema_version", "protocol_version"])
@pytest.mark.parametrize("version", [1, 1.0, True, ["1.0"], {"major": 1}])
async def test_a_version_of_the_wrong_type_is_an_invalid_payload(
    stage: Stage, field: str, version: Any
) -> None:
    await refused(stage, "INVALID_PAYLOAD", field, "", **{field: version})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("message_type", 7),
        ("message_type", ["request"]),
        ("requires_response", 1),
        ("recipient_mode", "telepathy"),
        ("callback_type", "carrier pigeon"),
        ("policy", {"sensitivity": "cosmic"}),
        ("causality", "M-1"),
        ("compatible_with", "v1"),
    ],
)
async def test_a_field_of_the_wrong_type_is_an_invalid_payload(
    stage: Stage, field: str, value: Any
) -> None:
    await refused(stage, "INVALID_PAYLOAD", field, "", **{field: value})


async def test_an_unknown_type_beside_a_known_message_type_is_handled(stage: Stage) -> None:
    await handled(stage, type="stream.chunk")
