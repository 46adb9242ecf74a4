"""One concern each, wrapped around the handling of a delivery."""

from amqp_agents.middleware.circuit_breaker import circuit_breaker
from amqp_agents.middleware.expiry import expiry
from amqp_agents.middleware.hop_limit import hop_limit
from amqp_agents.middleware.poison import poison
from amqp_agents.middleware.time_limit import time_limit

__all__ = ["circuit_breaker", "expiry", "hop_limit", "poison", "time_limit"]
