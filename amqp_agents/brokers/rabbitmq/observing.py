"""What exists in a vhost: read from the management API, or asked for over AMQP."""

from collections.abc import Mapping
from typing import Any

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel

from amqp_agents.brokers.management import Management
from amqp_agents.brokers.rabbitmq.crew import Crew
from amqp_agents.brokers.rabbitmq.faults import reply_text
from amqp_agents.topology.model import Binding, Exchange, Policy, Queue, Topology
from amqp_agents.topology.observed import Observed, ObservedExchange, ObservedQueue
from amqp_agents.topology.plan import Change, ChangeKind, ObjectKind


async def observe_by_management(management: Management) -> Observed:
    """Return everything in the vhost."""
    return Observed(
        exchanges={each["name"]: _exchange(each) for each in await management.exchanges()},
        queues={each["name"]: _queue(each) for each in await management.queues()},
        bindings=tuple(_binding(each) for each in await management.bindings() if each["source"]),
        policies=tuple(_policy(each) for each in await management.policies()),
    )


async def observe_by_amqp(crew: Crew, topology: Topology) -> Observed:
    """Return which of the topology's exchanges and queues exist; AMQP shows no more."""
    queues = [queue.name for queue in topology.queues]
    exchanges = [exchange.name for exchange in topology.exchanges]
    found_exchanges = await crew.each(exchanges, _exchange_exists)
    found_queues = await crew.each(queues, _queue_exists)
    return Observed(
        exchanges={name: ObservedExchange() for name, found in found_exchanges if found},
        queues={name: ObservedQueue() for name, found in found_queues if found},
    )


async def conflicts_by_amqp(
    crew: Crew, wanted: Topology, bare: Topology, actual: Observed
) -> list[Change]:
    """Return what exists with other settings, in the broker's own words.

    Declaring what exists changes nothing: equal settings are accepted, others refused. What
    exists as in `bare` is no conflict: its policies, which AMQP does not show, do the rest.
    """
    subjects: list[Exchange | Queue] = [
        *(each for each in wanted.exchanges if each.name in (actual.exchanges or {})),
        *(each for each in wanted.queues if each.name in (actual.queues or {})),
    ]
    refused = [each for each in await crew.each(subjects, refusal) if each[1] is not None]
    exchanges = {each.name: each for each in bare.exchanges}
    queues = {each.name: each for each in bare.queues}
    others: list[Exchange | Queue] = [
        exchanges[each.name] if isinstance(each, Exchange) else queues[each.name]
        for each, _ in refused
    ]
    again = await crew.each(others, refusal)
    return [
        Change(ChangeKind.CONFLICT, kind_of(subject), subject.name, (text or "",), subject)
        for (subject, text), (_, as_bare) in zip(refused, again, strict=True)
        if as_bare is not None
    ]


async def refusal(channel: AbstractChannel, subject: Exchange | Queue) -> str | None:
    """Declare the object; return what the broker says if it exists with other settings."""
    try:
        await declare(channel, subject)
    except library.ChannelPreconditionFailed as error:
        return reply_text(error)
    return None


async def declare(channel: AbstractChannel, subject: Exchange | Queue | Binding) -> None:
    """Declare one durable object over AMQP."""
    if isinstance(subject, Exchange):
        await channel.exchange_declare(
            subject.name,
            exchange_type=subject.kind.value,
            durable=True,
            arguments=subject.arguments,
        )
    elif isinstance(subject, Queue):
        await channel.queue_declare(subject.name, durable=True, arguments=subject.arguments)
    elif subject.to_exchange:
        await channel.exchange_bind(
            subject.destination,
            subject.source,
            subject.routing_key,
            arguments=dict(subject.arguments),
        )
    else:
        await channel.queue_bind(
            subject.destination,
            subject.source,
            subject.routing_key,
            arguments=dict(subject.arguments),
        )


def kind_of(subject: Exchange | Queue) -> ObjectKind:
    """Return what kind of object it is."""
    return ObjectKind.EXCHANGE if isinstance(subject, Exchange) else ObjectKind.QUEUE


async def _exchange_exists(channel: AbstractChannel, name: str) -> bool:
    try:
        await channel.exchange_declare(name, passive=True)
    except library.ChannelNotFoundEntity:
        return False
    return True


async def _queue_exists(channel: AbstractChannel, name: str) -> bool:
    try:
        await channel.queue_declare(name, passive=True)
    except library.ChannelNotFoundEntity:
        return False
    return True


def _exchange(told: Mapping[str, Any]) -> ObservedExchange:
    return ObservedExchange(
        kind=told["type"],
        arguments=_table(told.get("arguments")),
        durable=told["durable"],
        auto_delete=told["auto_delete"],
        internal=told["internal"],
    )


def _queue(told: Mapping[str, Any]) -> ObservedQueue:
    # Until the first statistics (about 5 s) old versions leave these two out.
    effective = told.get("effective_policy_definition")
    return ObservedQueue(
        arguments=_table(told.get("arguments")),
        durable=told["durable"],
        auto_delete=told["auto_delete"],
        exclusive=bool(told.get("exclusive", False)),
        policy=told.get("policy") or None,
        effective=None if effective is None else _table(effective),
    )


def _binding(told: Mapping[str, Any]) -> Binding:
    return Binding(
        told["source"],
        told["destination"],
        told["routing_key"],
        _table(told.get("arguments")),
        told["destination_type"] == "exchange",
    )


def _policy(told: Mapping[str, Any]) -> Policy:
    return Policy(
        told["name"],
        told["pattern"],
        _table(told["definition"]),
        priority=int(told["priority"]),
        apply_to=told["apply-to"],
    )


def _table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}  # an empty one may come as []
