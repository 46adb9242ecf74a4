"""The only door to RabbitMQ, and its stand-in in memory."""
