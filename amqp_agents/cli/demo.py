"""`amqp-agents demo`: the ticket workflow, on the memory broker or on RabbitMQ."""

import os

import typer
from rich.console import Console

from amqp_agents import demo as workflow
from amqp_agents.cli.connecting import AsJson, Url, run_async
from amqp_agents.cli.examples import with_examples
from amqp_agents.config import load_settings

HELP = with_examples(
    "Show four agents at work on a late order. In memory, unless a URL is given.",
    "amqp-agents demo",
    "AMQP_AGENTS_URL=amqp://guest:guest@127.0.0.1:5672/ amqp-agents demo",
)


def demo(url: Url = None, as_json: AsJson = False) -> None:
    """Run the ticket workflow: in memory, or on RabbitMQ if a URL is given."""
    given = url is not None or "AMQP_AGENTS_URL" in os.environ
    address = load_settings(url=url).url.get_secret_value() if given else None
    console = Console(highlight=False)
    raise typer.Exit(run_async(workflow.run(address, console=console, as_json=as_json)))
