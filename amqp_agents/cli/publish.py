"""`amqp-agents publish`: send a message and wait for the broker's confirm, not for an answer."""

from typing import Annotated, Any

import typer

from amqp_agents.cli.connecting import NAME, AsJson, Url, run_async
from amqp_agents.cli.examples import with_examples
from amqp_agents.cli.output import say, say_json
from amqp_agents.cli.payload import read_payload
from amqp_agents.client import connect
from amqp_agents.context import Outgoing, compose_message
from amqp_agents.errors import ConfigurationError
from amqp_agents.protocol import AgentMessage, AgentRef
from amqp_agents.topology.names import checked_agent_id, checked_intent_pattern

HELP = with_examples(
    "Publish a message, event or broadcast. Returns once RabbitMQ has confirmed it.",
    """amqp-agents publish '{"text": "refund please"}' --to quality_agent --priority 1""",
    """amqp-agents publish '{"ticket": "T-1"}' --event ticket.closed""",
    """amqp-agents publish @policy.json --broadcast policy.version_changed --ttl 300""",
)


def publish(  # noqa: PLR0913 - one parameter for each option
    payload: Annotated[
        str, typer.Argument(help="A JSON object, @file, or - for stdin.", show_default=False)
    ],
    to: Annotated[str | None, typer.Option(help="The one agent it is for.")] = None,
    event: Annotated[str | None, typer.Option(help="The intent of an event.")] = None,
    broadcast: Annotated[str | None, typer.Option(help="The intent of a broadcast.")] = None,
    intent: Annotated[str | None, typer.Option(help="Which handler, with --to.")] = None,
    ttl: Annotated[int | None, typer.Option(min=1, help="Seconds until it expires.")] = None,
    priority: Annotated[
        int | None, typer.Option(min=1, max=10, help="1 (most urgent) to 10.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Publish a message; return once the broker has confirmed it."""
    where = _target(to=to, event=event, broadcast=broadcast, intent=intent)
    content = read_payload(payload)
    outgoing = Outgoing(
        content, to=to, event=event, broadcast=broadcast, intent=intent, ttl=ttl, priority=priority
    )
    message = compose_message(outgoing, sender=AgentRef(NAME))
    run_async(_send(message, url))
    facts: dict[str, Any] = {"message_id": message.message_id, "trace_id": message.trace_id}
    if as_json:
        say_json(facts | {"to": to, "event": event, "broadcast": broadcast})
    else:
        say(f"published {where}: message {message.message_id}, confirmed by RabbitMQ")


async def _send(message: AgentMessage, url: str | None) -> None:
    async with connect(url, name=NAME) as client:
        await client.publish(message)


def _target(*, to: str | None, event: str | None, broadcast: str | None, intent: str | None) -> str:
    """Return where it goes, in words. Raises: ConfigurationError unless it is one place."""
    given = {"to": to, "event": event, "broadcast": broadcast}
    named = [f"--{name}" for name, value in given.items() if value is not None]
    if len(named) != 1:
        told = f"not {' and '.join(named)} together" if named else "name one"
        raise ConfigurationError(
            f"a message goes --to AGENT, or as --event INTENT or --broadcast INTENT; {told}"
        )
    if to is not None:
        return f"to agent {checked_agent_id(to)}"
    if intent is not None:
        raise ConfigurationError(f"--intent belongs to --to; {named[0]} names its intent itself")
    word = event if event is not None else broadcast or ""
    if "*" in word or "#" in word:
        raise ConfigurationError(
            f"{word!r} is a pattern; publish one intent, such as ticket.closed"
        )
    return f"{named[0].removeprefix('--')} {checked_intent_pattern(word)}"
