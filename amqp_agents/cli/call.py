"""`amqp-agents call`: ask an agent, print its answer."""

import math
from typing import Annotated

import typer

from amqp_agents.cli.connecting import NAME, AsJson, Url, run_async
from amqp_agents.cli.examples import with_examples
from amqp_agents.cli.output import say_json, say_pretty
from amqp_agents.cli.payload import read_payload
from amqp_agents.client import connect

HELP = with_examples(
    "Ask an agent, print its answer. An error answer is exit code 1.",
    """amqp-agents call quality_agent '{"text": "refund please"}'""",
    "amqp-agents call quality_agent @draft.json --timeout 60",
    "echo '{}' | amqp-agents call quality_agent - --intent review_reply_risk --json",
)


def seconds(value: float) -> float:
    """Let only a time pass that can be waited for."""
    if not math.isfinite(value) or not 0 < value <= 86_400:
        raise typer.BadParameter(
            f"{value:g} is no time to wait; give seconds from above 0 to 86400"
        )
    return value


def call(
    agent: Annotated[str, typer.Argument(help="Who is asked.", show_default=False)],
    payload: Annotated[
        str, typer.Argument(help="A JSON object, @file, or - for stdin.", show_default=False)
    ],
    intent: Annotated[str | None, typer.Option(help="Which of its handlers.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the answer.", callback=seconds)
    ] = 30.0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask an agent and print its answer."""
    question = read_payload(payload)

    async def ask() -> dict[str, object]:
        async with connect(url, name=NAME) as client:
            return await client.request(agent, question, intent=intent, timeout_seconds=timeout)

    answer = run_async(ask())
    if as_json:
        say_json(answer)
    else:
        say_pretty(answer)
