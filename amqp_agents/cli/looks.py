"""Why looking into a dead-letter queue must know its delivery limit.

From RabbitMQ 4.0 on a quorum queue counts every message that was handed out and came back,
looks included, and drops it at its delivery limit: 20, unless something says otherwise.

Source: https://www.rabbitmq.com/docs/quorum-queues, poison message handling.
"""

from collections.abc import Callable, Mapping
from typing import Any

from amqp_agents.brokers.management import ManagementError
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.cli.connecting import management_of
from amqp_agents.config import Settings
from amqp_agents.errors import BrokerConnectionError, ConfigurationError
from amqp_agents.pipeline import Delivery
from amqp_agents.topology.names import dead_letter_queue

UNLIMITED, DEFAULT_LIMIT = -1, 20
COUNTS_SINCE = (4, 0)
MARGIN = 5

Check = Callable[[Delivery], None]


async def check_of(broker: RabbitMQBroker, settings: Settings, agent: str) -> Check:
    """Return what ends a look before it could cost a message of the agent's queue."""
    queue = dead_letter_queue(agent)
    if broker.version[:2] < COUNTS_SINCE:
        return lambda _: None
    try:
        async with management_of(settings) as management:
            limit = delivery_limit(await management.queue(queue) or {})
    except (BrokerConnectionError, ManagementError):
        limit = None

    def check(delivery: Delivery) -> None:
        if near_limit(delivery.delivery_count or 0, limit):
            raise ConfigurationError(_told(queue, delivery.delivery_count or 0, limit))

    return check


def delivery_limit(queue: Mapping[str, Any]) -> int | None:
    """Return the limit that holds for a queue, as the management API tells; None if unseen.

    Of an argument and a policy the lower one counts; -1 is none.

    >>> delivery_limit({"effective_policy_definition": {"delivery-limit": -1}})
    -1
    >>> delivery_limit({"arguments": {}, "effective_policy_definition": {}})
    20
    """
    arguments, policy = queue.get("arguments"), queue.get("effective_policy_definition")
    told: list[int] = [
        table[key]
        for table, key in ((arguments, "x-delivery-limit"), (policy, "delivery-limit"))
        if isinstance(table, Mapping) and isinstance(table.get(key), int)
    ]
    bounds = [limit for limit in told if limit >= 0]
    if bounds:
        return min(bounds)
    if told:
        return UNLIMITED
    # Until the first statistics nothing is told about policies.
    return None if policy is None else DEFAULT_LIMIT


def near_limit(count: int, limit: int | None) -> bool:
    """Return whether a message came back so often that further looks would endanger it.

    A count beyond the default limit proves, where no limit is seen, that there is none.

    >>> near_limit(16, None), near_limit(16, -1), near_limit(40, None)
    (True, False, False)
    """
    if limit == UNLIMITED or (limit is None and count > DEFAULT_LIMIT):
        return False
    return count >= (DEFAULT_LIMIT if limit is None else limit) - MARGIN


def _told(queue: str, count: int, limit: int | None) -> str:
    seen = "whose delivery limit cannot be seen" if limit is None else f"that drops at {limit}"
    return (
        f"a message of {queue} was looked at or delivered {count} times, in a queue {seen}; "
        "it was left alone; lift the limit with 'amqp-agents topology apply'"
        + ("" if limit is not None else ", or set AMQP_AGENTS_MANAGEMENT_URL so that it is seen")
    )
