"""`python -m amqp_agents` is `amqp-agents`."""

from amqp_agents.cli import main

main()
