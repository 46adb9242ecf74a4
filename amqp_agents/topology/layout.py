"""The whole topology of a set of agents, as one value."""

from collections.abc import Sequence

from amqp_agents.errors import ConfigurationError, DuplicateAgentError
from amqp_agents.topology import names, policies
from amqp_agents.topology.delays import LEVELS
from amqp_agents.topology.model import (
    AgentSpec,
    Arguments,
    Binding,
    Exchange,
    ExchangeKind,
    Queue,
    QueueKind,
    Topology,
)
from amqp_agents.topology.policies import policies_as_arguments

__all__ = ["policies_as_arguments", "reply_topology", "standard_topology"]

REPLY_EXPIRES_MS = 600_000

# Without overflow=reject-publish the broker would silently dead-letter at most once.
_AT_LEAST_ONCE: Arguments = {
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def standard_topology(agents: Sequence[AgentSpec]) -> Topology:
    """Return everything these agents need in their vhost, in the order of an apply.

    Raises: ConfigurationError for a name or an intent that cannot be a routing key;
        DuplicateAgentError.
    """
    _check(agents)
    return Topology(
        agents=tuple(agents),
        exchanges=_exchanges(),
        queues=_queues(agents),
        bindings=_bindings(agents),
        policies=(policies.INBOX, policies.DEAD_LETTERS, policies.LOST),
    )


def reply_topology(instance: str) -> Topology:
    """Return the reply queue of one client instance, which each instance declares itself.

    It outlives a lost connection for ten minutes.
    """
    queue = names.reply_queue(instance)
    settings: Arguments = {"x-expires": REPLY_EXPIRES_MS, "x-message-ttl": REPLY_EXPIRES_MS}
    return Topology(
        exchanges=(Exchange(names.REPLY, ExchangeKind.TOPIC),),
        queues=(Queue(queue, QueueKind.CLASSIC, settings),),
        bindings=(Binding(names.REPLY, queue, instance),),
    )


def inbox_queue(agent: str) -> Queue:
    """Return the queue an agent's messages arrive in.

    >>> inbox_queue("quality_agent").name
    'agent.quality_agent'
    """
    # The explicit key: an event arrives with a key of its own, which agent.dlx cannot route.
    return Queue(
        names.inbox(agent),
        settings={
            "x-dead-letter-exchange": names.DLX,
            "x-dead-letter-routing-key": agent,
            **_AT_LEAST_ONCE,
        },
    )


def inbox_bindings(agent: AgentSpec, queue: str) -> tuple[Binding, ...]:
    """Return every way a message takes to the agent, ending in `queue`."""
    direct = (names.DIRECT, names.DELAY_EXIT, names.SUBSCRIPTIONS)
    keys = [names.inbox(agent.name)]
    # Whether a fact is an event or a broadcast is its publisher's choice; who listens hears both.
    for broadcast in (False, True):
        keys += [names.event_key(intent, broadcast=broadcast) for intent in agent.events]
    return (
        *(Binding(source, queue, agent.name) for source in direct),
        *(Binding(names.EVENTS, queue, key) for key in dict.fromkeys(keys)),
    )


def _check(agents: Sequence[AgentSpec]) -> None:
    seen: set[str] = set()
    for agent in agents:
        if names.checked_agent_id(agent.name) in seen:
            raise DuplicateAgentError(agent.name)
        seen.add(agent.name)
        for intent in agent.events:
            try:
                names.checked_intent_pattern(intent)
            except ConfigurationError as error:
                raise ConfigurationError(f"agent {agent.name!r}: {error}") from None


def _below(level: int) -> str:
    return names.DELAY_EXIT if level == 0 else names.delay_level(level - 1)


def _exchanges() -> tuple[Exchange, ...]:
    kinds = ExchangeKind
    levels = [
        Exchange(names.delay_level(level), kinds.HEADERS, alternate=_below(level))
        for level in range(LEVELS)
    ]
    return (
        Exchange(names.LOST, kinds.FANOUT),
        Exchange(names.DLX, kinds.DIRECT, alternate=names.LOST),
        # As an argument: a policy could be shadowed, and one missing target would then
        # stall every delayed message of every agent.
        Exchange(names.DELAY_EXIT, kinds.DIRECT, alternate=names.LOST),
        *levels,
        Exchange(names.DELAY, kinds.TOPIC),
        # No alternate: an unknown agent must come back to its sender at once.
        Exchange(names.DIRECT, kinds.DIRECT),
        Exchange(names.EVENTS, kinds.TOPIC),
        Exchange(names.SUBSCRIPTIONS, kinds.DIRECT),
        Exchange(names.REPLY, kinds.TOPIC),
        Exchange(names.CONTROL, kinds.TOPIC),
    )


def _queues(agents: Sequence[AgentSpec]) -> tuple[Queue, ...]:
    levels = [
        Queue(
            names.delay_level(level),
            settings={
                "x-message-ttl": 2**level * 1000,
                "x-dead-letter-exchange": _below(level),
                **_AT_LEAST_ONCE,
            },
        )
        for level in range(LEVELS)
    ]
    inboxes = [
        queue
        for agent in agents
        for queue in (Queue(names.dead_letter_queue(agent.name)), inbox_queue(agent.name))
    ]
    return (Queue(names.LOST), *levels, *inboxes)


def _bindings(agents: Sequence[AgentSpec]) -> tuple[Binding, ...]:
    levels = [
        Binding(
            names.delay_level(level),
            names.delay_level(level),
            arguments={"x-match": "all", f"d{level}": True},
        )
        for level in range(LEVELS)
    ]
    door = Binding(names.DELAY, names.delay_level(LEVELS - 1), "#", to_exchange=True)
    return (
        Binding(names.LOST, names.LOST),
        *levels,
        door,
        *(
            binding
            for agent in agents
            for binding in (
                Binding(names.DLX, names.dead_letter_queue(agent.name), agent.name),
                *inbox_bindings(agent, names.inbox(agent.name)),
            )
        ),
    )
