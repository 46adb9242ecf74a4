"""One test file for each public report of a broken messaging system, proven on RabbitMQ."""
