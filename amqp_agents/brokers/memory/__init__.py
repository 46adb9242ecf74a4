"""A broker without RabbitMQ: the same topology, interpreted in memory."""

from amqp_agents.brokers.memory.broker import MemoryBroker
from amqp_agents.brokers.memory.faults import Faults
from amqp_agents.brokers.memory.vhost import Vhost

__all__ = ["Faults", "MemoryBroker", "Vhost"]
