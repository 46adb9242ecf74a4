from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_agents.topology.layout import policies_as_arguments, standard_topology
from amqp_agents.topology.model import (
    Binding,
    Exchange,
    ExchangeKind,
    Policy,
    Queue,
    QueueKind,
    Topology,
    Version,
)
from amqp_agents.topology.observed import Observed, ObservedExchange, ObservedQueue, observed_of
from amqp_agents.topology.plan import (
    Change,
    ChangeKind,
    ObjectKind,
    alternates_first,
    binding_name,
    plan,
)
from tests.unit.topology.seen import (
    AGENTS,
    CONFLICT,
    CREATE,
    DESIRED,
    UPDATE,
    VERSIONS,
    with_arguments,
    with_exchange,
    with_policy,
    with_queue,
    without,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_has_everything_needs_nothing(version: Version) -> None:
    assert plan(DESIRED, observed_of(DESIRED, version), version) == ()
    arguments = policies_as_arguments(DESIRED, version)
    assert plan(arguments, observed_of(arguments, version), version) == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_broker_needs_everything_once(version: Version) -> None:
    changes = plan(DESIRED, Observed({}, {}, (), ()), version)
    assert {change.kind for change in changes} == {CREATE}
    assert len({(change.object_kind, change.name) for change in changes}) == len(changes)
    policies = [policy for policy in DESIRED.policies if policy.min_version <= version]
    wanted = (*DESIRED.exchanges, *DESIRED.queues, *DESIRED.bindings, *policies)
    subjects = [change.subject for change in changes]
    assert len(subjects) == len(wanted)
    assert all(each in subjects for each in wanted)


def test_the_order_is_one_in_which_everything_named_exists_already() -> None:
    changes = plan(DESIRED, Observed({}, {}, (), ()), (4, 0))
    at = {(change.object_kind, change.name): index for index, change in enumerate(changes)}
    for exchange in DESIRED.exchanges:
        if exchange.alternate is not None:
            alternate = at[ObjectKind.EXCHANGE, exchange.alternate]
            assert alternate < at[ObjectKind.EXCHANGE, exchange.name]
    order = [ObjectKind.EXCHANGE, ObjectKind.POLICY, ObjectKind.QUEUE, ObjectKind.BINDING]
    assert [change.object_kind for change in changes] == sorted(
        (change.object_kind for change in changes), key=order.index
    )


@given(st.permutations(DESIRED.exchanges))
def test_alternates_come_first_however_the_exchanges_are_listed(
    exchanges: list[Exchange],
) -> None:
    ordered = [exchange.name for exchange in alternates_first(exchanges)]
    assert sorted(ordered) == sorted(exchange.name for exchange in exchanges)
    for exchange in exchanges:
        if exchange.alternate is not None:
            assert ordered.index(exchange.alternate) < ordered.index(exchange.name)


def test_exchanges_that_are_each_others_alternate_are_still_all_listed() -> None:
    pair = [
        Exchange("a", ExchangeKind.FANOUT, alternate="b"),
        Exchange("b", ExchangeKind.FANOUT, alternate="a"),
    ]
    assert {exchange.name for exchange in alternates_first(pair)} == {"a", "b"}


def remove_exchange(actual: Observed, exchange: Exchange) -> Observed:
    return replace(actual, exchanges=without(actual.exchanges, exchange.name))


def retype_exchange(actual: Observed, exchange: Exchange) -> Observed:
    other = "topic" if exchange.kind is not ExchangeKind.TOPIC else "direct"
    return with_exchange(actual, exchange.name, kind=other)


def divert_exchange(actual: Observed, exchange: Exchange) -> Observed:
    return with_exchange(actual, exchange.name, arguments={"alternate-exchange": "elsewhere"})


def make_transient(actual: Observed, exchange: Exchange) -> Observed:
    return with_exchange(actual, exchange.name, durable=False)


@given(
    st.sampled_from(DESIRED.exchanges),
    st.sampled_from(
        [
            (remove_exchange, CREATE),
            (retype_exchange, CONFLICT),
            (divert_exchange, CONFLICT),
            (make_transient, CONFLICT),
        ]
    ),
    st.sampled_from(VERSIONS),
)
def test_one_exchange_that_differs_is_the_one_that_is_named(
    exchange: Exchange,
    mutation: tuple[Callable[[Observed, Exchange], Observed], ChangeKind],
    version: Version,
) -> None:
    mutate, kind = mutation
    (change,) = plan(DESIRED, mutate(observed_of(DESIRED, version), exchange), version)
    assert change.kind is kind
    assert (change.object_kind, change.name) == (ObjectKind.EXCHANGE, exchange.name)
    assert bool(change.differences) == (kind is CONFLICT)
    assert change.subject == exchange


def remove_queue(actual: Observed, queue: Queue) -> Observed:
    return replace(actual, queues=without(actual.queues, queue.name))


def retype_queue(actual: Observed, queue: Queue) -> Observed:
    return with_queue(actual, queue.name, kind="classic")


def limit_queue(actual: Observed, queue: Queue) -> Observed:
    return with_arguments(actual, queue.name, max_length=5)


def strip_or_redirect(actual: Observed, queue: Queue) -> Observed:
    return with_arguments(actual, queue.name, dead_letter_exchange="elsewhere")


@given(
    st.sampled_from(DESIRED.queues),
    st.sampled_from(
        [
            (remove_queue, CREATE),
            (retype_queue, CONFLICT),
            (limit_queue, CONFLICT),
            (strip_or_redirect, CONFLICT),
        ]
    ),
    st.sampled_from(VERSIONS),
)
def test_one_queue_that_differs_is_the_one_that_is_named(
    queue: Queue,
    mutation: tuple[Callable[[Observed, Queue], Observed], ChangeKind],
    version: Version,
) -> None:
    mutate, kind = mutation
    (change,) = plan(DESIRED, mutate(observed_of(DESIRED, version), queue), version)
    assert change.kind is kind
    assert (change.object_kind, change.name) == (ObjectKind.QUEUE, queue.name)
    assert len(change.differences) == (1 if kind is CONFLICT else 0)


@given(st.sampled_from(DESIRED.bindings), st.sampled_from(VERSIONS))
def test_one_missing_binding_is_the_one_that_is_named(binding: Binding, version: Version) -> None:
    actual = observed_of(DESIRED, version)
    kept = tuple(each for each in actual.bindings or () if each != binding)
    changes = plan(DESIRED, replace(actual, bindings=kept), version)
    assert changes == (Change(CREATE, ObjectKind.BINDING, binding_name(binding)),)
    assert changes[0].subject == binding


@given(
    st.sampled_from(DESIRED.policies),
    st.sampled_from(
        [
            {"priority": 3},
            {"pattern": "^x$"},
            {"definition": {"expires": 1}},
            {"apply_to": "all"},
        ]
    ),
)
def test_one_policy_that_differs_is_updated(policy: Policy, changes: dict[str, Any]) -> None:
    actual = with_policy(observed_of(DESIRED, (4, 0)), replace(policy, **changes))
    (change,) = plan(DESIRED, actual, (4, 0))
    assert (change.kind, change.object_kind, change.name) == (
        UPDATE,
        ObjectKind.POLICY,
        policy.name,
    )
    assert change.differences


@given(st.sampled_from(DESIRED.policies))
def test_one_missing_policy_is_created(policy: Policy) -> None:
    actual = observed_of(DESIRED, (4, 0))
    kept = tuple(each for each in actual.policies or () if each != policy)
    assert plan(DESIRED, replace(actual, policies=kept), (4, 0)) == (
        Change(CREATE, ObjectKind.POLICY, policy.name),
    )


def test_a_conflict_names_each_setting_with_have_and_want() -> None:
    actual = with_arguments(
        observed_of(DESIRED, (4, 0)), "agent.a", overflow=None, dead_letter_routing_key="b"
    )
    (change,) = plan(DESIRED, actual, (4, 0))
    assert change.differences == (
        "x-dead-letter-routing-key: have b, want a",
        "x-overflow: have none, want reject-publish",
    )
    assert str(change) == (
        "conflict queue agent.a (x-dead-letter-routing-key: have b, want a,"
        " x-overflow: have none, want reject-publish)"
    )


def test_a_queue_without_a_type_is_classic() -> None:
    want = Topology(queues=(Queue("q", QueueKind.CLASSIC),))
    assert plan(want, Observed(queues={"q": ObservedQueue(arguments={})}), (3, 10)) == ()
    quorum = Topology(queues=(Queue("q"),))
    (change,) = plan(quorum, Observed(queues={"q": ObservedQueue(arguments={})}), (3, 10))
    assert change.differences == ("x-queue-type: have classic, want quorum",)


@pytest.mark.parametrize("value", [1000, 1000.0])
def test_numbers_are_equal_in_each_of_their_wire_forms(value: float) -> None:
    assert (
        plan(
            DESIRED,
            with_arguments(observed_of(DESIRED, (4, 0)), "agent.delay.v1.0", message_ttl=value),
            (4, 0),
        )
        == ()
    )


@pytest.mark.parametrize("value", [1, "true"])
def test_true_is_neither_one_nor_a_word(value: object) -> None:
    settings = {"x-single-active-consumer": True}
    want = Topology(queues=(Queue("q", settings=settings),))
    actual = observed_of(want, (4, 0))
    changes = plan(want, with_arguments(actual, "q", single_active_consumer=value), (4, 0))
    assert [change.name for change in changes] == ["q"]


def test_an_argument_that_says_what_the_policy_says_is_no_difference() -> None:
    actual = with_arguments(observed_of(DESIRED, (4, 0)), "agent.a", delivery_limit=100)
    assert plan(DESIRED, actual, (4, 0)) == ()
    other = with_arguments(observed_of(DESIRED, (4, 0)), "agent.a", delivery_limit=20)
    (change,) = plan(DESIRED, other, (4, 0))
    assert change.differences == ("x-delivery-limit: have 20, want none",)


def test_a_policy_in_effect_stands_for_the_argument_wanted() -> None:
    arguments = replace(policies_as_arguments(DESIRED, (4, 0)), policies=DESIRED.policies)
    actual = observed_of(DESIRED, (4, 0))
    assert plan(arguments, actual, (4, 0)) == ()
    fresh = {name: replace(q, policy=None, effective=None) for name, q in actual.queues.items()}  # type: ignore[union-attr]
    assert plan(arguments, replace(actual, queues=fresh), (4, 0)) == ()


def test_arguments_without_effect_and_a_missing_owner_are_no_difference() -> None:
    plain = {"x-queue-type": "quorum", "foo": 1, **DESIRED.queues[0].settings}
    actual = with_queue(observed_of(DESIRED, (4, 0)), "agent.lost", arguments=plain)
    assert plan(DESIRED, actual, (4, 0)) == ()


def test_an_object_of_another_owner_is_a_conflict() -> None:
    actual = with_exchange(
        observed_of(DESIRED, (4, 0)), "agent.direct", arguments={"aa-owner": "others"}
    )
    (change,) = plan(DESIRED, actual, (4, 0))
    assert change.differences == ("aa-owner: have others, want amqp_agents",)


def test_what_could_not_be_seen_is_not_planned() -> None:
    assert plan(DESIRED, Observed(), (4, 0)) == ()
    exists = Observed(
        exchanges={exchange.name: ObservedExchange() for exchange in DESIRED.exchanges},
        queues={queue.name: ObservedQueue() for queue in DESIRED.queues if queue.name != "agent.a"},
    )
    (change,) = plan(DESIRED, exists, (4, 0))
    assert (change.kind, change.name) == (CREATE, "agent.a")


def test_a_headers_binding_with_other_arguments_is_another_binding() -> None:
    actual = observed_of(DESIRED, (4, 0))
    changed = tuple(
        replace(each, arguments={"x-match": "any", "d3": True})
        if each.source == "agent.delay.v1.3"
        else each
        for each in actual.bindings or ()
    )
    (change,) = plan(DESIRED, replace(actual, bindings=changed), (4, 0))
    assert change.name == "agent.delay.v1.3 -> agent.delay.v1.3 [] x-match=all d3=true"


@given(st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_what_was_seen(random: Any) -> None:
    actual = observed_of(standard_topology(AGENTS[:1]), (4, 0))
    bindings, policies = list(actual.bindings or ()), list(actual.policies or ())
    random.shuffle(bindings)
    random.shuffle(policies)
    shuffled = replace(actual, bindings=tuple(bindings), policies=tuple(policies))
    assert plan(DESIRED, shuffled, (4, 0)) == plan(DESIRED, actual, (4, 0))
