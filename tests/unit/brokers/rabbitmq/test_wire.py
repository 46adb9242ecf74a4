"""Between our values and AMQP properties."""

from datetime import UTC, datetime

from aiormq.abc import DeliveredMessage
from pamqp import commands, header

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.rabbitmq.wire import incoming_delivery, outgoing_properties
from amqp_agents.protocol.properties import Properties

FULL = Properties(
    content_type="application/json",
    content_encoding="utf-8",
    headers={"aa-attempt": 2, "text": "x", "yes": True},
    priority=7,
    correlation_id="c",
    reply_to="agent.reply.i",
    expiration_ms=1500,
    message_id="ours",
    timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    type="task.request",
    user_id="ignored",
    app_id="app",
)


def received(properties: commands.Basic.Properties, **frame: object) -> DeliveredMessage:
    """The message as the client library would hand it over, after its way over the wire."""
    content = header.ContentHeader()
    content.unmarshal(header.ContentHeader(0, 2, properties).marshal())
    defaults = {"delivery_tag": 1, "redelivered": True, "exchange": "x", "routing_key": "k"}
    deliver = commands.Basic.Deliver(**(defaults | frame))  # type: ignore[arg-type]
    return DeliveredMessage(deliver, content, b"{}", channel=None)  # type: ignore[arg-type]


def sent(properties: Properties, user: str | None = "guest") -> commands.Basic.Properties:
    publishing = Publishing("x", "k", b"{}", properties)
    return outgoing_properties(publishing, wire_id="wire-1", user=user)


def test_every_property_survives_the_way_except_the_ids_of_the_transport() -> None:
    delivery = incoming_delivery(received(sent(FULL)), "agent.a")
    expected = {**vars_of(FULL), "message_id": "wire-1", "user_id": "guest"}
    assert vars_of(delivery.properties) == expected
    assert (delivery.queue, delivery.exchange, delivery.routing_key) == ("agent.a", "x", "k")
    assert delivery.body == b"{}"
    assert delivery.redelivered


def test_absent_properties_stay_absent() -> None:
    delivery = incoming_delivery(received(sent(Properties(), user=None)), "agent.a")
    assert vars_of(delivery.properties) == {**vars_of(Properties()), "message_id": "wire-1"}


def test_a_transient_message_stays_transient() -> None:
    delivery = incoming_delivery(received(sent(Properties(persistent=False))), "agent.a")
    assert not delivery.properties.persistent


def test_an_expiration_is_whole_milliseconds_as_text() -> None:
    assert sent(Properties(expiration_ms=0)).expiration == "0"
    assert sent(Properties(expiration_ms=1500)).expiration == "1500"


def test_an_expiration_of_another_form_reads_as_none() -> None:
    for text in ("soon", "1.5", "-1", "١٢"):
        properties = commands.Basic.Properties(expiration=text)
        assert incoming_delivery(received(properties), "q").properties.expiration_ms is None


def test_the_delivery_count_is_the_brokers_number_or_none() -> None:
    for value, count in ((3, 3), ("3", None), (True, None), (None, None)):
        properties = commands.Basic.Properties(headers={"x-delivery-count": value})
        assert incoming_delivery(received(properties), "q").delivery_count == count


def test_properties_know_whether_they_were_encoded() -> None:
    properties = outgoing_properties(Publishing("x", "k", b"", FULL), wire_id="1", user=None)
    assert not properties.encoded
    properties.marshal()
    assert properties.encoded


def vars_of(properties: Properties) -> dict[str, object]:
    return {name: getattr(properties, name) for name in Properties.__slots__}  # type: ignore[attr-defined]
