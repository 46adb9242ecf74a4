"""Pure parts of the memory broker: what a death leaves behind, which settings take effect."""

from datetime import UTC, datetime

import pytest

from amqp_agents.brokers.memory.messages import Death, Message, Reason, after_death, is_cycle
from amqp_agents.brokers.memory.settings import DEFAULT_DELIVERY_LIMIT, settings_of
from amqp_agents.protocol.properties import Properties
from amqp_agents.topology.model import Policy, Queue, QueueKind

NOW = 1_800_000_000.5
VERSION = (4, 3)


def died(message: Message, queue: str, reason: Reason) -> Message:
    return after_death(message, queue, reason, exchange="dlx", routing_key="dead", now=NOW)


def test_deaths_are_counted_by_queue_and_reason_the_newest_first() -> None:
    message = Message(b"", Properties(expiration_ms=5), "x", "k")
    for queue, reason in (
        ("a", Reason.EXPIRED),
        ("b", Reason.REJECTED),
        ("a", Reason.REJECTED),
        ("a", Reason.EXPIRED),
    ):
        message = died(message, queue, reason)
    found = [(death.queue, death.reason.value, death.count) for death in message.deaths]
    assert found == [("a", "expired", 2), ("a", "rejected", 1), ("b", "rejected", 1)]
    assert message.deaths[0].at == datetime.fromtimestamp(int(NOW), UTC)
    assert message.deaths[0].expiration_ms == 5
    assert message.properties.expiration_ms is None


def test_a_death_tells_where_the_message_was_published_that_died() -> None:
    first = died(Message(b"", Properties(), "x", "k"), "a", Reason.EXPIRED)
    second = died(first, "b", Reason.EXPIRED)
    assert [(death.exchange, death.routing_key) for death in second.deaths] == [
        ("dlx", "dead"),
        ("x", "k"),
    ]


@pytest.mark.parametrize(
    ("deaths", "cycle"),
    [
        ([], False),
        ([("b", Reason.EXPIRED)], False),
        ([("a", Reason.EXPIRED)], True),
        ([("b", Reason.EXPIRED), ("a", Reason.EXPIRED)], True),
        ([("b", Reason.REJECTED), ("a", Reason.EXPIRED)], False),
        ([("b", Reason.EXPIRED), ("a", Reason.REJECTED)], False),
        ([("b", Reason.EXPIRED), ("a", Reason.DELIVERY_LIMIT), ("c", Reason.REJECTED)], True),
    ],
)
def test_a_way_back_to_the_same_queue_is_a_cycle_unless_somebody_rejected(
    deaths: list[tuple[str, Reason]], cycle: bool
) -> None:
    at = datetime.fromtimestamp(0, UTC)
    known = tuple(Death(queue, reason, "", "", at) for queue, reason in deaths)
    assert is_cycle(known, "a") is cycle


def test_numbers_take_the_smaller_of_argument_and_policy() -> None:
    queue = Queue("q", settings={"x-message-ttl": 100, "x-max-length": 7})
    policy = Policy("p", "^q$", {"message-ttl": 50, "max-length": 9, "expires": 3})
    settings = settings_of(queue, [policy], VERSION)
    assert (settings.ttl_ms, settings.max_length, settings.expires_ms) == (50, 7, 3)


def test_dead_lettering_follows_the_argument_and_overflow_the_policy() -> None:
    queue = Queue(
        "q",
        settings={
            "x-dead-letter-exchange": "mine",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    )
    policy = Policy(
        "p",
        "^q$",
        {
            "dead-letter-exchange": "theirs",
            "dead-letter-routing-key": "theirs",
            "overflow": "drop-head",
        },
    )
    alone, together = settings_of(queue, [], VERSION), settings_of(queue, [policy], VERSION)
    assert (alone.dead_letter_exchange, alone.at_least_once, alone.rejects) == ("mine", True, True)
    assert (together.dead_letter_exchange, together.dead_letter_key) == ("mine", "theirs")
    assert (together.at_least_once, together.rejects) == (False, False)


@pytest.mark.parametrize(
    ("argument", "policy", "limit"),
    [
        (None, None, DEFAULT_DELIVERY_LIMIT),
        (5, None, 5),
        (5, 3, 3),
        (-1, None, None),
        (None, -1, None),
        (-1, 8, 8),
        (0, None, 0),
    ],
)
def test_the_delivery_limit_is_the_smaller_one_that_is_a_limit(
    argument: int | None, policy: int | None, limit: int | None
) -> None:
    queue = Queue("q", settings={} if argument is None else {"x-delivery-limit": argument})
    policies = [] if policy is None else [Policy("p", "^q$", {"delivery-limit": policy})]
    assert settings_of(queue, policies, VERSION).delivery_limit == limit


def test_only_the_policy_of_the_highest_priority_takes_effect() -> None:
    policies = [
        Policy("low", "^q$", {"message-ttl": 1, "max-length": 1}, priority=1),
        Policy("high", "^q$", {"message-ttl": 2}, priority=2),
        Policy("other", "^r$", {"message-ttl": 3}, priority=3),
        Policy("later", "^q$", {"message-ttl": 4}, priority=4, min_version=(9, 0)),
    ]
    settings = settings_of(Queue("q"), policies, VERSION)
    assert (settings.ttl_ms, settings.max_length) == (2, None)


def test_a_classic_queue_has_no_delivery_limit_and_no_safe_dead_lettering() -> None:
    queue = Queue("q", QueueKind.CLASSIC, {"x-max-priority": 3, "x-overflow": "reject-publish"})
    settings = settings_of(queue, [], VERSION)
    assert (settings.delivery_limit, settings.at_least_once) == (None, False)
    assert settings.max_priority == 3
