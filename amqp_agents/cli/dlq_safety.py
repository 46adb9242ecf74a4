"""Why looking into a dead-letter queue must know its delivery limit.

A quorum queue counts every message that was handed out and came back, looks included, and
drops it at its delivery limit: from RabbitMQ 4.0 on 20, unless something says otherwise.

Source: https://www.rabbitmq.com/docs/quorum-queues, poison message handling.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from amqp_agents.brokers.management import ManagementError
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.cli.connecting import management_of
from amqp_agents.cli.output import note
from amqp_agents.config import Settings
from amqp_agents.dead_letters import DeadLetterFacts
from amqp_agents.errors import BrokerConnectionError, ConfigurationError
from amqp_agents.topology.model import Policy, QueueKind, Version
from amqp_agents.topology.names import dead_letter_queue
from amqp_agents.topology.policies import LIMIT, effective_policy

NONE, DEFAULT = -1, 20
DEFAULT_SINCE = (4, 0)
MANY = 10


async def ensure_safe(broker: RabbitMQBroker, settings: Settings, agent: str) -> bool:
    """Return whether looking at the agent's dead letters is known to be safe.

    Without the management API it cannot be known, and False is the answer.

    Raises: ConfigurationError if looking would cost messages; nothing was looked at then.
    """
    queue = dead_letter_queue(agent)
    try:
        async with management_of(settings) as management:
            told = await management.queue(queue)
            policies = await management.policies()
    except (BrokerConnectionError, ManagementError):
        return False
    if told is None:
        return False
    limit = delivery_limit(told, policies, broker.version[:2])
    if limit != NONE:
        raise ConfigurationError(
            f"{queue} has a delivery limit of {limit}, so looking would use up its messages; "
            "nothing was looked at; lift the limit with 'amqp-agents topology apply'"
        )
    return True


def delivery_limit(
    queue: Mapping[str, Any], policies: Sequence[Mapping[str, Any]], version: Version
) -> int:
    """Return the limit in effect, as the management API tells; -1 for none.

    Of an argument and a policy the lower one counts. The queue's own listing tells of
    policies some seconds late, so it is asked about an operator's policy only.

    >>> delivery_limit({"name": "q"}, [], (3, 10)), delivery_limit({"name": "q"}, [], (4, 0))
    (-1, 20)
    """
    readable = [_policy(told) for told in policies if _compiles(told.get("pattern"))]
    name = str(queue.get("name"))
    chosen = effective_policy(readable, name, version, kind=QueueKind.QUORUM)
    operators = queue.get("effective_policy_definition") if queue.get("operator_policy") else None
    tables = (
        (queue.get("arguments"), f"x-{LIMIT}"),
        (operators, LIMIT),
        (None if chosen is None else chosen.definition, LIMIT),
    )
    found = [table.get(key) for table, key in tables if isinstance(table, Mapping)]
    told = [limit for limit in found if isinstance(limit, int)]
    if not told:
        return NONE if version < DEFAULT_SINCE else DEFAULT
    return min((limit for limit in told if limit >= 0), default=NONE)


def warn_of_looks(broker: RabbitMQBroker, letters: Sequence[DeadLetterFacts]) -> None:
    """Say so if messages came back often in a queue whose limit cannot be seen."""
    endangered = {each.agent for each in letters if MANY <= (each.returned or 0) <= DEFAULT}
    for agent in sorted(endangered) if broker.version[:2] >= DEFAULT_SINCE else ():
        note(
            f"warning: whether {dead_letter_queue(agent)} has a delivery limit cannot be seen; "
            f"without the policy agent.dlq messages are dropped at {DEFAULT} looks; set "
            "AMQP_AGENTS_MANAGEMENT_URL, or ask 'amqp-agents doctor'"
        )


def _compiles(pattern: object) -> bool:
    try:
        re.compile(str(pattern))
    except re.error:
        return False  # only the broker understands it
    return True


def _policy(told: Mapping[str, Any]) -> Policy:
    return Policy(
        str(told.get("name")),
        str(told.get("pattern")),
        told["definition"] if isinstance(told.get("definition"), Mapping) else {},
        priority=int(told.get("priority", 0)),
        apply_to=str(told.get("apply-to")),
    )
