"""RabbitMQ over aio-pika; the only room that knows a client library."""

from amqp_agents.brokers.rabbitmq.broker import RabbitMQBroker

__all__ = ["RabbitMQBroker"]
