"""A delivery mode nobody defined: what goes wrong before the handler is settled as well."""

import pytest

from tests.cases.checks import bounded, canary, not_told, odd, settled, told
from tests.cases.stage import JSON, Stage, body_of, until
from tests.nodes.rawpub import Refused, long, properties, table

pytestmark = [pytest.mark.rabbitmq, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("mode", [0, 3, 4, 16, 127, 128, 255])
async def test_an_unknown_delivery_mode_is_handled_and_told(stage: Stage, mode: int) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    props = properties(content_type=JSON, delivery_mode=bytes([mode]))
    try:
        await stage.put("work", body, props)
    except Refused:  # RabbitMQ before 4.0
        assert await stage.place.version() < (4, 0)
        await canary(stage, "work")
        return
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    told(case, f"delivery_mode: {mode}", event="property_unreadable")


@pytest.mark.parametrize("mode", [None, 1, 2])
async def test_a_known_delivery_mode_is_nothing_to_tell(stage: Stage, mode: int | None) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    given = {} if mode is None else {"delivery_mode": bytes([mode])}
    await stage.put("work", body, properties(content_type=JSON, **given))
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)
    not_told(case, "property_unreadable")


@pytest.mark.parametrize(
    "odd_property",
    [
        {"priority": b"\xff"},
        {"priority": b"\x00"},
        {"expiration": b"\x0a4294967295"},
        {"type": b"\x00"},
        {"message_id": b"\xff" + b"m" * 255},
        {"correlation_id": b"\xff" + b"c" * 255},
        {"reply_to": b"\x05amq.x"},
        {"reply_to": b"\xff" + b"r" * 255},
        {"app_id": b"\x00"},
        {"content_encoding": b"\x05utf-8"},
        {"timestamp": b"\x00" * 8},
        {"headers": table()},
        {"headers": table(*((b"k%d" % n, b"V") for n in range(1000)))},
        {"headers": table((b"k" * 255, b"S" + long(b"v" * 60_000)))},
    ],
    ids=lambda given: ",".join(f"{k} of {len(v)}" for k, v in given.items()),
)
async def test_the_edges_of_every_property_are_settled(
    stage: Stage, odd_property: dict[str, bytes]
) -> None:
    body, message_id = body_of("work")
    case = odd(stage, "work", body, message_id)
    await stage.put("work", body, properties(**({"content_type": JSON} | odd_property)))
    await canary(stage, "work")
    await settled(case, "handled")
    bounded(case)


@pytest.mark.parametrize("mode", [0, 3, 255])
async def test_a_failing_message_of_an_unknown_mode_is_retried_and_given_up(
    stage: Stage, mode: int
) -> None:
    body, message_id = body_of("failing")
    case = odd(stage, "failing", body, message_id)
    try:
        await stage.put("failing", body, properties(content_type=JSON, delivery_mode=bytes([mode])))
    except Refused:
        assert await stage.place.version() < (4, 0)
        return
    await until(lambda: stage.journal.count("dead-lettered", message_id) == 1, "given up")
    await settled(case, "dead")
    bounded(case, deliveries=3)
    told(case, "it always fails")
