"""Addressed, typed, traceable messages between agents, over RabbitMQ."""

from amqp_agents.agent import Agent, BoundHandler, agent
from amqp_agents.app import AgentApp
from amqp_agents.brokers.memory import MemoryBroker
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.client import Client, SyncClient, connect
from amqp_agents.config import RetryPolicy, Settings
from amqp_agents.context import Caller, Context, Outgoing
from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    BrokerError,
    CircuitOpenError,
    ConfigurationError,
    DependencyFailedError,
    ErrorCode,
    NonRetryableError,
    PermissionDeniedError,
    RequestTimeoutError,
    RetryLater,
    UnroutableMessageError,
)
from amqp_agents.injection import RawMessage
from amqp_agents.observability import MemoryJournal
from amqp_agents.protocol import AgentMessage, HybridMessage, MessageType
from amqp_agents.protocol.error_payload import ErrorPayload
from amqp_agents.publisher import AsyncPublisher
from amqp_agents.routing.breaker_state import BreakerPolicy

__all__ = [
    "Agent",
    "AgentApp",
    "AgentCommunicationError",
    "AgentError",
    "AgentMessage",
    "AsyncPublisher",
    "BoundHandler",
    "BreakerPolicy",
    "BrokerError",
    "Caller",
    "CircuitOpenError",
    "Client",
    "ConfigurationError",
    "Context",
    "DependencyFailedError",
    "ErrorCode",
    "ErrorPayload",
    "HybridMessage",
    "MemoryBroker",
    "MemoryJournal",
    "MessageType",
    "NonRetryableError",
    "Outgoing",
    "PermissionDeniedError",
    "RabbitMQBroker",
    "RawMessage",
    "RequestTimeoutError",
    "RetryLater",
    "RetryPolicy",
    "Settings",
    "SyncClient",
    "UnroutableMessageError",
    "agent",
    "connect",
]
