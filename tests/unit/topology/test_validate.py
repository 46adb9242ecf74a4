from dataclasses import replace

import pytest

from amqp_agents.errors import ConfigurationError
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import (
    AgentSpec,
    Binding,
    Exchange,
    ExchangeKind,
    Policy,
    Queue,
    QueueKind,
    Topology,
)
from amqp_agents.topology.validate import problems, validate

QUORUM, CLASSIC, STREAM = QueueKind.QUORUM, QueueKind.CLASSIC, QueueKind.STREAM
DLX = Exchange("dlx", ExchangeKind.FANOUT)
SAFE = {
    "x-dead-letter-exchange": "dlx",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def of_queue(settings: dict[str, object], kind: QueueKind = QUORUM) -> tuple[str, ...]:
    return problems(Topology(exchanges=(DLX,), queues=(Queue("q", kind, settings),)))  # type: ignore[arg-type]


def test_what_the_package_lays_out_is_valid() -> None:
    topology = standard_topology([AgentSpec("a", events=("x.#",))])
    assert validate(topology) is topology


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (SAFE | {"x-dead-letter-routing-key": "k", "x-delivery-limit": -1}, QUORUM),
        ({"x-message-ttl": 0, "x-max-length": 0, "x-overflow": "reject-publish-dlx"}, CLASSIC),
        ({"x-max-priority": 255, "x-single-active-consumer": True}, CLASSIC),
        ({"x-max-age": "7D", "x-max-length-bytes": 10**12}, STREAM),
        ({"x-dead-letter-exchange": ""}, QUORUM),
        ({"aa-note": "ours"}, QUORUM),
    ],
)
def test_known_arguments_of_the_right_type_pass(
    settings: dict[str, object], kind: QueueKind
) -> None:
    assert of_queue(settings, kind) == ()


@pytest.mark.parametrize(
    ("settings", "kind", "sentence"),
    [
        ({"x-mesage-ttl": 1}, QUORUM, "did you mean 'x-message-ttl'?"),
        ({"foo": 1}, QUORUM, "unknown argument 'foo', which the broker would ignore"),
        ({"x-queue-master-locator": "min-masters"}, CLASSIC, "unknown argument"),
        ({"x-max-priority": 5}, QUORUM, "x-max-priority is not for quorum queues"),
        ({"x-delivery-limit": 5}, CLASSIC, "x-delivery-limit is not for classic queues"),
        ({"x-message-ttl": 5}, STREAM, "x-message-ttl is not for stream queues"),
        ({"x-message-ttl": "5"}, QUORUM, "x-message-ttl is '5', expected a whole number"),
        ({"x-message-ttl": 5.0}, QUORUM, "x-message-ttl is 5.0, expected a whole number"),
        ({"x-message-ttl": True}, QUORUM, "x-message-ttl is True, expected a whole number"),
        ({"x-message-ttl": -1}, QUORUM, "x-message-ttl is -1"),
        ({"x-message-ttl": 2**32}, QUORUM, "x-message-ttl is 4294967296"),
        ({"x-expires": 0}, CLASSIC, "x-expires is 0, expected a whole number of ms, 1"),
        ({"x-max-priority": 256}, CLASSIC, "x-max-priority is 256"),
        ({"x-delivery-limit": -2}, QUORUM, "x-delivery-limit is -2"),
        ({"x-single-active-consumer": 1}, CLASSIC, "expected true or false"),
        ({"x-overflow": "reject"}, CLASSIC, "expected one of drop-head"),
        ({"x-max-age": "7 days"}, STREAM, "such as 7D"),
        ({"x-overflow": "reject-publish-dlx"}, QUORUM, "use reject-publish"),
        ({"x-dead-letter-routing-key": "k"}, CLASSIC, "needs x-dead-letter-exchange"),
        (SAFE | {"x-overflow": "drop-head"}, QUORUM, "needs x-overflow reject-publish"),
        ({"x-dead-letter-strategy": "at-least-once"}, QUORUM, "dead letters can be lost"),
        (SAFE | {"x-dead-letter-exchange": "gone"}, QUORUM, "gone is not declared"),
    ],
)
def test_an_argument_that_would_not_do_what_it_says_is_refused(
    settings: dict[str, object], kind: QueueKind, sentence: str
) -> None:
    found = of_queue(settings, kind)
    assert any(sentence in problem for problem in found)
    assert all(problem.startswith("queue q: ") for problem in found)


@pytest.mark.parametrize(
    ("settings", "version", "sentence"),
    [
        ({"x-delayed-retry-type": "all"}, (4, 0), "no effect before RabbitMQ 4.3"),
        ({"x-consumer-timeout": 1000}, (3, 10), "no effect before RabbitMQ 4.0"),
        ({"x-delivery-limit": -1}, (3, 13), "destroys every message before RabbitMQ 4.0"),
    ],
)
def test_an_argument_ahead_of_the_broker_is_refused(
    settings: dict[str, str | int | bool], version: tuple[int, int], sentence: str
) -> None:
    topology = Topology(queues=(Queue("q", settings=settings),))
    assert problems(topology) == ()
    assert problems(topology, (4, 3)) == ()
    (problem,) = problems(topology, version)
    assert sentence in problem


@pytest.mark.parametrize("name", ["", "amq.gen-1", "ü" * 128])
def test_names_the_broker_cannot_take_are_refused(name: str) -> None:
    fanout = ExchangeKind.FANOUT
    assert len(problems(Topology(queues=(Queue(name),)))) == 1
    assert len(problems(Topology(exchanges=(Exchange(name, fanout),)))) == 1
    assert problems(Topology(queues=(Queue("x" * 255),))) == ()


def test_bindings_and_alternates_must_name_what_is_declared() -> None:
    topology = Topology(
        exchanges=(DLX, Exchange("x", ExchangeKind.TOPIC, alternate="gone")),
        queues=(Queue("q"),),
        bindings=(
            Binding("x", "q"),
            Binding("x", "dlx", to_exchange=True),
            Binding("nowhere", "q"),
            Binding("x", "dlx"),
            Binding("x", "q", to_exchange=True),
            Binding("x", "q", "k" * 256),
        ),
    )
    assert [problem.rpartition(": ")[2] for problem in problems(topology)] == [
        "alternate gone is not declared",
        "exchange nowhere is not declared",
        "queue dlx is not declared",
        "exchange q is not declared",
        "the routing key is longer than 255 bytes",
    ]


def test_a_headers_binding_must_say_how_it_matches() -> None:
    topology = Topology(
        exchanges=(Exchange("h", ExchangeKind.HEADERS),),
        queues=(Queue("q"),),
        bindings=(Binding("h", "q", arguments={"x-match": "every", "d1": True}),),
    )
    assert "x-match is 'every'" in problems(topology)[0]


def test_one_name_may_be_declared_twice_only_if_both_are_equal() -> None:
    same = Topology(queues=(Queue("q"), Queue("q")))
    other = Topology(
        exchanges=(DLX, replace(DLX, kind=ExchangeKind.TOPIC)),
        queues=(Queue("q"), Queue("q", CLASSIC)),
        policies=(Policy("p", "a", {"expires": 1}), Policy("p", "b", {"expires": 1})),
    )
    assert problems(same) == ()
    assert problems(other) == (
        "exchange dlx: declared twice, differently",
        "queue q: declared twice, differently",
        "policy p: declared twice, differently",
    )


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Policy("p", "q", {}), "sets nothing"),
        (Policy("p", "q(", {"expires": 1}), "not a regular expression"),
        (Policy("p", "q", {"x-expires": 1}), "did you mean 'expires'?"),
        (Policy("p", "q", {"max-priority": 1}), "unknown setting 'max-priority'"),
        (Policy("p", "q", {"expires": 0}), "expires is 0"),
    ],
)
def test_a_policy_the_broker_would_refuse_is_refused(policy: Policy, sentence: str) -> None:
    (problem,) = problems(Topology(policies=(policy,)))
    assert sentence in problem


def test_two_policies_of_one_priority_may_not_match_one_queue() -> None:
    pair = (Policy("one", "q", {"expires": 1}), Policy("two", ".*", {"expires": 2}))
    queues = (Queue("q"), Queue("r"))
    (problem,) = problems(Topology(queues=queues, policies=pair))
    assert problem.startswith("queue q: policies one and two have the same priority")
    ranked = (pair[0], replace(pair[1], priority=0))
    assert problems(Topology(queues=queues, policies=ranked)) == ()


def test_every_problem_is_named_at_once() -> None:
    topology = Topology(queues=(Queue("a", settings={"b": 1}), Queue("amq.c")))
    with pytest.raises(ConfigurationError) as caught:
        validate(topology)
    assert "queue a: " in str(caught.value)
    assert "queue amq.c: " in str(caught.value)
