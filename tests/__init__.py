"""Every test of the project, and the machinery that obtains RabbitMQ nodes for them."""
