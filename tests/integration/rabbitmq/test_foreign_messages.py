"""What other clients put into properties must not end our connection."""

import struct
from datetime import UTC, datetime

import pytest

from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.protocol.properties import Properties
from tests.conformance.waiting import Arrivals, body, send
from tests.nodes.rawpub import Refused, long, properties, publish_raw, short, table

pytestmark = pytest.mark.rabbitmq


def unsigned(number: int) -> bytes:
    return struct.pack(">Q", number)


def nested(depth: int, kind: bytes) -> bytes:
    value = b"t\x01"
    for _ in range(depth):
        value = kind + (table((b"in", value)) if kind == b"F" else long(value))
    return value


ODD = {
    "microseconds": properties(timestamp=unsigned(1_772_000_000_000_000)),
    "nanoseconds": properties(timestamp=unsigned(1_772_000_000_000_000_000)),
    "largest timestamp": properties(timestamp=unsigned(2**64 - 1)),
    "before 1970": properties(timestamp=unsigned(2**64 - 14_255_999)),
    "timestamp header": properties(headers=table((b"when", b"T" + unsigned(2**64 - 1)))),
    "text that is not UTF-8": properties(content_type=short(b"text/\xff"), type=short(b"\xc3")),
    "header that is not UTF-8": properties(headers=table((b"k\xe9y", b"S" + long(b"\xff\xfe")))),
    "delivery mode 3": properties(delivery_mode=b"\x03"),
    "delivery mode 0": properties(delivery_mode=b"\x00"),
    "expiration of another form": properties(expiration=short(b"99999999")),
    "decimal": properties(headers=table((b"price", b"D" + struct.pack(">Bi", 255, -1)))),
    "bytes": properties(headers=table((b"raw", b"x" + long(b"\x00\xff")))),
    "void": properties(headers=table((b"none", b"V"))),
    "double": properties(headers=table((b"ratio", b"d" + struct.pack(">d", 1e300)))),
    "deep table": properties(headers=table((b"deep", nested(400, b"F")))),
    "deep array": properties(headers=table((b"deep", nested(400, b"A")))),
    "attempt of another type": properties(headers=table((b"aa-attempt", b"S" + long(b"many")))),
}


async def published(url: str, property_bytes: bytes) -> bool:
    """Publish odd properties; False if this version of RabbitMQ does not take them itself."""
    try:
        await publish_raw(url, b"work", b"odd", property_bytes)
    except Refused as refused:
        assert "delivery_mode_unknown" in str(refused)  # noqa: PT017 - not every version
        return False
    return True


@pytest.mark.parametrize("case", ODD)
async def test_an_odd_message_is_delivered_and_those_behind_it_too(
    broker: RabbitMQBroker, vhost_url: str, case: str
) -> None:
    arrivals = Arrivals(broker)
    subscription = await broker.consume("work", arrivals, prefetch=1)
    await subscription.ready(10)
    taken = await published(vhost_url, ODD[case])
    await send(broker, "work", "work", "behind it")
    if taken:
        odd = await arrivals.next()
        assert (body(odd), odd.delivery.attempt) == ("odd", 1)
        assert await odd.ack()
    assert body(await arrivals.next()) == "behind it"
    assert subscription.epoch == 1  # type: ignore[attr-defined]


async def test_a_browser_reads_odd_messages_too(broker: RabbitMQBroker, vhost_url: str) -> None:
    taken = [case for case in ODD if await published(vhost_url, ODD[case])]
    browser = await broker.browse("work")
    leases = [await browser.get() for _ in taken]
    assert all(lease is not None and body(lease) == "odd" for lease in leases)
    assert await browser.get() is None
    await browser.close()


async def test_what_cannot_be_represented_is_told_apart_from_what_can(
    broker: RabbitMQBroker, vhost_url: str
) -> None:
    arrivals = Arrivals(broker)
    await broker.consume("work", arrivals, prefetch=10)
    await publish_raw(vhost_url, b"work", b"", ODD["nanoseconds"])
    await publish_raw(vhost_url, b"work", b"", properties(timestamp=unsigned(1_772_000_000_000)))
    await publish_raw(vhost_url, b"work", b"", ODD["header that is not UTF-8"])
    await publish_raw(vhost_url, b"work", b"", b"\x00\x00")
    found = [lease.delivery.properties for lease in await arrivals.some(4)]
    assert found[0].timestamp is None
    assert found[1].timestamp == datetime(2026, 2, 25, 6, 13, 20, tzinfo=UTC)
    assert found[2].headers["k\ufffdy"] == "\ufffd\ufffd"
    assert found[3] == Properties(persistent=False, headers=found[3].headers)
