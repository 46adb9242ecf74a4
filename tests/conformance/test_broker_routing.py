"""Where a message goes: exchanges of every type, alternates, bindings between exchanges."""

import pytest

from amqp_agents.brokers.base import Broker
from amqp_agents.errors import UnroutableMessageError
from amqp_agents.topology.model import Arguments, Binding, Exchange, ExchangeKind, Queue, Topology
from tests.conformance.waiting import send

KEYS = ("", "a", "a.b", "a.b.c", "b.a", "x.a.b", "a.x.b", "a.x.y.b", "a.", ".a", "..", "A")

TAKES = {
    "": {""},
    "a": {"a"},
    "*": {"a", "A"},
    "#": set(KEYS),
    "a.*": {"a.b", "a."},
    "*.a": {"b.a", ".a"},
    "*.*": {"a.b", "b.a", "a.", ".a"},
    "a.#": {"a", "a.b", "a.b.c", "a.x.b", "a.x.y.b", "a."},
    "#.a": {"a", "b.a", ".a"},
    "#.b": {"a.b", "x.a.b", "a.x.b", "a.x.y.b"},
    "a.#.b": {"a.b", "a.x.b", "a.x.y.b"},
    "a.*.b": {"a.x.b"},
    "#.#": set(KEYS),
    "*.#": set(KEYS) - {""},
    "#.*": set(KEYS) - {""},
    "*.#.*": set(KEYS) - {"", "a", "A"},
    "#.a.#": {"a", "a.b", "a.b.c", "b.a", "x.a.b", "a.x.b", "a.x.y.b", "a.", ".a"},
    "#.*.b": {"a.b", "x.a.b", "a.x.b", "a.x.y.b"},
    "a*": set(),
    "a.b.c.d": set(),
}


def bound(exchange: Exchange, *bindings: Binding, also: tuple[Exchange, ...] = ()) -> Topology:
    """The exchange with everything bound to it; queues are made as the bindings name them."""
    names = dict.fromkeys(b.destination for b in bindings if not b.to_exchange)
    return Topology(exchanges=(exchange, *also), queues=tuple(map(Queue, names)), bindings=bindings)


async def received(broker: Broker, queues: list[str]) -> dict[str, set[str]]:
    """What each queue holds, looked at and left there."""
    found: dict[str, set[str]] = {}
    for queue in queues:
        browser = await broker.browse(queue)
        bodies = []
        while (lease := await browser.get()) is not None:
            bodies.append(lease.delivery.body.decode())
        await browser.close()
        assert len(bodies) == len(set(bodies)), "one copy for each queue"
        found[queue] = set(bodies)
    return found


async def test_topic_wildcards_match_words(broker: Broker) -> None:
    patterns = {f"q{number}": pattern for number, pattern in enumerate(TAKES)}
    bindings = [Binding("topic", queue, pattern) for queue, pattern in patterns.items()]
    await broker.apply(bound(Exchange("topic", ExchangeKind.TOPIC), *bindings))
    for key in KEYS:
        await send(broker, "topic", key, key)
    found = await received(broker, list(patterns))
    assert {patterns[queue]: keys for queue, keys in found.items()} == TAKES


async def test_a_direct_exchange_compares_whole_keys(broker: Broker) -> None:
    await broker.apply(
        bound(
            Exchange("direct", ExchangeKind.DIRECT),
            Binding("direct", "one", "a"),
            Binding("direct", "two", "a"),
            Binding("direct", "star", "*"),
        )
    )
    await send(broker, "direct", "a", "to a")
    await send(broker, "direct", "*", "to star")
    found = await received(broker, ["one", "two", "star"])
    assert found == {"one": {"to a"}, "two": {"to a"}, "star": {"to star"}}


async def test_a_fanout_exchange_copies_to_all(broker: Broker) -> None:
    bindings = (Binding("fanout", "one"), Binding("fanout", "two", "ignored"))
    await broker.apply(bound(Exchange("fanout", ExchangeKind.FANOUT), *bindings))
    await send(broker, "fanout", "whatever", "all")
    assert await received(broker, ["one", "two"]) == {"one": {"all"}, "two": {"all"}}


HEADERS: dict[str, tuple[Arguments, set[str]]] = {
    "all": ({"x-match": "all", "kind": "report", "size": 3}, {"both", "both and more"}),
    "default": ({"kind": "report", "size": 3}, {"both", "both and more"}),
    "any": (
        {"x-match": "any", "kind": "report", "size": 3},
        {"both", "both and more", "kind only", "size only"},
    ),
    "true": ({"x-match": "all", "urgent": True}, {"both and more"}),
    "number-one": ({"x-match": "all", "urgent": 1}, {"one"}),
    "ignores-x": (
        {"x-match": "all", "x-foreign": "yes", "kind": "report"},
        {"both", "both and more", "kind only"},
    ),
    "only-x": ({"x-match": "any", "x-foreign": "yes"}, set()),
    "nothing": (
        {"x-match": "all"},
        {"both", "both and more", "kind only", "size only", "one", "none"},
    ),
}


async def test_a_headers_exchange_compares_values(broker: Broker) -> None:
    bindings = [Binding("headers", queue, arguments=HEADERS[queue][0]) for queue in HEADERS]
    await broker.apply(bound(Exchange("headers", ExchangeKind.HEADERS), *bindings))
    for text, headers in {
        "both": {"kind": "report", "size": 3},
        "both and more": {"kind": "report", "size": 3, "urgent": True},
        "kind only": {"kind": "report", "size": "3"},
        "size only": {"kind": "Report", "size": 3},
        "one": {"urgent": 1},
        "none": {},
    }.items():
        await send(broker, "headers", "", text, headers=headers)
    found = await received(broker, list(HEADERS))
    assert found == {queue: takes for queue, (_, takes) in HEADERS.items()}


async def test_an_alternate_takes_only_what_no_binding_matches(broker: Broker) -> None:
    await broker.apply(
        bound(
            Exchange("first", ExchangeKind.DIRECT, alternate="second"),
            Binding("first", "one", "a"),
            Binding("second", "two", "b"),
            Binding("third", "rest"),
            also=(
                Exchange("second", ExchangeKind.DIRECT, alternate="third"),
                Exchange("third", ExchangeKind.FANOUT),
            ),
        )
    )
    for key in "abc":
        await send(broker, "first", key, key)
    found = await received(broker, ["one", "two", "rest"])
    assert found == {"one": {"a"}, "two": {"b"}, "rest": {"c"}}


async def test_a_queue_reached_by_two_ways_gets_one_copy(broker: Broker) -> None:
    await broker.apply(
        bound(
            Exchange("door", ExchangeKind.TOPIC),
            Binding("door", "q", "a.#"),
            Binding("door", "q", "#.b"),
            Binding("door", "inner", "#", to_exchange=True),
            Binding("inner", "q"),
            Binding("inner", "door", to_exchange=True),
            also=(Exchange("inner", ExchangeKind.FANOUT),),
        )
    )
    await send(broker, "door", "a.b", "once")
    assert await received(broker, ["q"]) == {"q": {"once"}}


async def test_a_binding_to_an_exchange_that_leads_nowhere_hides_the_alternate(
    broker: Broker,
) -> None:
    await broker.apply(
        bound(
            Exchange("door", ExchangeKind.DIRECT, alternate="rest"),
            Binding("door", "empty", "a", to_exchange=True),
            Binding("rest", "q"),
            also=(Exchange("empty", ExchangeKind.FANOUT), Exchange("rest", ExchangeKind.FANOUT)),
        )
    )
    with pytest.raises(UnroutableMessageError):
        await send(broker, "door", "a", "lost")
    await send(broker, "door", "b", "kept")
    assert await received(broker, ["q"]) == {"q": {"kept"}}


async def test_the_default_exchange_names_queues(broker: Broker) -> None:
    await broker.apply(Topology(queues=(Queue("q"),)))
    await send(broker, "", "q", "by name")
    assert await received(broker, ["q"]) == {"q": {"by name"}}
