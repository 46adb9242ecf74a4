"""The demo: one ticket, four agents, every message real.

A late order, and a customer who was promised compensation. `run` plays it on the memory broker
or on RabbitMQ, and proves from the journal that each step really happened.
"""

from amqp_agents.demo.story import run

__all__ = ["run"]
