from datetime import UTC, datetime
from typing import Any

import pytest

from amqp_agents.errors import AgentError, InvalidPayloadError
from amqp_agents.parking import dead_letter, replayed, retry_copy
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol import check_properties
from amqp_agents.protocol.properties import Properties

NOW = 1_783_915_200.4
MOMENT = datetime(2026, 7, 13, 4, tzinfo=UTC)


def delivery(headers: dict[str, Any] | None = None, **properties: Any) -> Delivery:
    return Delivery(
        b"\x00body",
        Properties(headers=headers or {}, **properties),
        "agent.a",
        exchange="agent.events",
        routing_key="event.x",
    )


def retried(arrived: Delivery, seconds: float = 5, *, counted: bool = True) -> Any:
    return retry_copy(arrived, agent="a", delay_seconds=seconds, counted=counted, now=NOW)


def buried(arrived: Delivery, error: BaseException | None = None, **options: Any) -> Any:
    return dead_letter(
        arrived, agent="a", error=error or InvalidPayloadError("bad"), now=NOW, **options
    )


def headers_of(copy: Any) -> dict[str, Any]:
    check_properties(copy.properties)  # it can be sent
    return dict(copy.properties.headers)


def test_a_retry_waits_in_the_delay_chain_and_comes_back_to_its_agent_only() -> None:
    copy = retried(delivery({"aa-attempt": 2}), 5.2)
    assert (copy.exchange, copy.routing_key, copy.mandatory) == ("agent.delay", "a", True)
    headers = headers_of(copy)
    assert {name: headers[name] for name in ("d1", "d2", "aa-attempt")} == {
        "d1": True,
        "d2": True,
        "aa-attempt": 3,
    }
    assert "d0" not in headers
    assert headers["aa-due-at"] == int((NOW + 6) * 1000)


def test_a_retry_that_did_not_count_keeps_its_attempt() -> None:
    assert headers_of(retried(delivery({"aa-attempt": 2}), counted=False))["aa-attempt"] == 2


def test_no_delay_is_longer_than_the_chain() -> None:
    headers = headers_of(retried(delivery(), 10**9))
    assert sum(2 ** int(name[1:]) for name in headers if name[1:].isdigit()) == 2**17 - 1


def test_the_delay_of_another_hop_is_not_waited_again() -> None:
    headers = headers_of(retried(delivery({"d7": True, "d3": True}), 1))
    assert {name for name in headers if name[1:].isdigit()} == {"d0"}
    assert not {"d7", "d3"} & set(headers_of(buried(delivery({"d7": True, "d3": True}))))


@pytest.mark.parametrize("copied", [retried, buried])
def test_the_body_and_what_is_not_of_one_hop_stay(copied: Any) -> None:
    properties = {
        "content_type": "application/json",
        "content_encoding": "gzip",
        "correlation_id": "c",
        "reply_to": "agent.reply.x",
        "timestamp": MOMENT,
        "type": "task.request",
        "app_id": "s",
    }
    copy = copied(delivery({"mine": 1}, persistent=False, **properties))
    assert copy.body == b"\x00body"
    assert {name: getattr(copy.properties, name) for name in properties} == properties
    assert headers_of(copy)["mine"] == 1
    assert copy.properties.persistent


@pytest.mark.parametrize("copied", [retried, buried])
def test_what_is_of_one_hop_rides_along_under_another_name(copied: Any) -> None:
    copy = copied(delivery(message_id="m", user_id="u", expiration_ms=1000, priority=9))
    properties = copy.properties
    assert (properties.message_id, properties.user_id, properties.expiration_ms) == (None,) * 3
    headers = headers_of(copy)
    assert {name: headers[f"aa-orig-{name}"] for name in ("message-id", "user-id")} == {
        "message-id": "m",
        "user-id": "u",
    }
    assert headers["aa-orig-expiration"] == 1000
    assert (headers["aa-orig-exchange"], headers["aa-orig-routing-key"]) == (
        "agent.events",
        "event.x",
    )


def test_a_delayed_copy_is_not_held_up_by_more_urgent_ones() -> None:
    assert retried(delivery(priority=9)).properties.priority is None
    assert buried(delivery(priority=9)).properties.priority == 9


def test_the_first_hop_is_the_one_that_is_remembered() -> None:
    first = headers_of(retried(delivery(message_id="first")))
    again = Delivery(
        b"", Properties(headers=first, message_id="second"), "agent.a", "agent.delay.exit", "a"
    )
    headers = headers_of(retried(again))
    assert headers["aa-orig-message-id"] == "first"
    assert headers["aa-orig-exchange"] == "agent.events"


@pytest.mark.parametrize("copied", [retried, buried])
def test_what_the_broker_wrote_about_another_message_is_left_behind(copied: Any) -> None:
    written = {
        "x-death": [{"queue": "q"}],
        "x-first-death-queue": "q",
        "x-last-death-reason": "rejected",
        "x-delivery-count": 3,
        "x-acquired-count": 3,
    }
    assert not set(written) & set(headers_of(copied(delivery(written))))


@pytest.mark.parametrize("copied", [retried, buried])
def test_foreign_headers_of_types_we_cannot_write_go_along_as_text(copied: Any) -> None:
    foreign = {
        "ratio": 0.5,
        "table": {"a": [1]},
        "bytes": b"\xff",
        "nothing": None,
        "naive": datetime(2026, 7, 13),
        "huge": 2**70,
        "half": "\ud800",
        "kept": MOMENT,
    }
    headers = headers_of(copied(delivery(foreign)))
    assert headers["ratio"] == "0.5"
    assert headers["table"] == "{'a': [1]}"
    assert headers["nothing"] == "None"
    assert headers["huge"] == str(2**70)
    assert headers["kept"] == MOMENT
    assert set(foreign) <= set(headers)


@pytest.mark.parametrize("copied", [retried, buried])
def test_foreign_headers_are_kept_as_far_as_they_fit_and_ours_first(copied: Any) -> None:
    foreign = {f"big-{n}": "x" * 4000 for n in range(20)} | {"aa-trace-id": "t", "y" * 200: 1}
    headers = headers_of(copied(delivery(foreign)))
    assert headers["aa-trace-id"] == "t"
    assert 3 < sum(name.startswith("big-") for name in headers) < 10


@pytest.mark.parametrize("copied", [retried, buried])
def test_properties_that_grew_by_reading_them_are_cut_to_fit(copied: Any) -> None:
    grown = "\ufffd" * 255  # 255 bytes that were no UTF-8
    names = ("content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id")
    copy = copied(delivery(None, **dict.fromkeys((*names, "user_id", "message_id"), grown)))
    headers_of(copy)
    assert copy.properties.correlation_id == "\ufffd" * 85


def test_a_dead_letter_says_why_when_and_where() -> None:
    copy = buried(delivery({"aa-attempt": 4}))
    assert (copy.exchange, copy.routing_key, copy.mandatory) == ("agent.dlx", "a", True)
    assert {k: v for k, v in headers_of(copy).items() if "orig" not in k} == {
        "aa-attempt": 4,
        "aa-fault-code": "INVALID_PAYLOAD",
        "aa-fault-type": "InvalidPayloadError",
        "aa-fault-message": "bad",
        "aa-fault-at": MOMENT,
        "aa-fault-agent": "a",
        "aa-fault-queue": "agent.a",
    }


class OddlyCodedError(AgentError):
    """A user's own, whose code is none."""

    code = "RATE_LIMITED"  # type: ignore[assignment]


class UnspeakableError(Exception):
    """Fails to say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    "error", [ValueError("x"), OddlyCodedError("x"), UnspeakableError(), KeyboardInterrupt()]
)
def test_any_error_can_be_the_reason(error: BaseException) -> None:
    headers = headers_of(buried(delivery(), error, stack=True))
    assert headers["aa-fault-code"] == "UNKNOWN"
    assert headers["aa-fault-type"] == type(error).__name__


def test_a_long_reason_is_cut_by_bytes() -> None:
    huge = type("E" * 5000, (Exception,), {})("ä" * 5000)
    headers = headers_of(buried(delivery(), huge, stack=True))
    assert len(headers["aa-fault-message"].encode()) <= 2000
    assert len(headers["aa-fault-stack"].encode()) <= 8000
    assert len(headers["aa-fault-type"].encode()) <= 255


def test_the_stack_is_told_only_when_asked_for() -> None:
    assert "aa-fault-stack" not in headers_of(buried(delivery()))
    with pytest.raises(ZeroDivisionError) as raised:
        raise ZeroDivisionError("x")
    stack = headers_of(buried(delivery(), raised.value, stack=True))["aa-fault-stack"]
    assert "test_parking" in stack


def test_a_replay_goes_to_the_failed_agent_as_a_first_attempt_of_now() -> None:
    dead = headers_of(
        buried(delivery({"aa-attempt": 4, "aa-due-at": 1, "aa-idempotency-key": "k"}))
    )
    letter = Delivery(b"body", Properties(headers=dead), "agent.a.dlq")
    copy = replayed(letter, agent="a", retry_id="r-1", now=NOW)
    assert (copy.exchange, copy.routing_key, copy.body) == ("agent.direct", "a", b"body")
    headers = headers_of(copy)
    assert headers["aa-retry-id"] == "r-1"
    assert headers["aa-clock-ms"] == int(NOW * 1000)
    assert headers["aa-idempotency-key"] == "k"
    assert headers["aa-orig-exchange"] == "agent.events"
    assert not [name for name in headers if name.startswith("aa-fault-")]
    assert not {"aa-attempt", "aa-due-at"} & set(headers)
