"""The command line `amqp-agents`: one file for each group of commands.

Exit codes: 0 fine, 1 an error (wrong usage included), 2 `topology check` found differences,
130 ended by Ctrl+C.
"""

import io
import logging
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from amqp_agents.cli import call, demo, dlq, doctor, publish, run, topology, version
from amqp_agents.cli.examples import RICH_HELP, with_examples
from amqp_agents.cli.group import Root

__all__ = ["app", "main"]

_HELP = with_examples(
    "Addressed, typed, traceable messages between agents over RabbitMQ.\n\n"
    "Exit codes: 0 fine, 1 error or wrong usage, 2 'topology check' found differences. "
    "RabbitMQ is at AMQP_AGENTS_URL, or amqp://guest:guest@127.0.0.1:5672/.",
    "amqp-agents demo",
    "amqp-agents run --declare my_agents:app",
    """amqp-agents call quality_agent '{"text": "refund please"}'""",
)


def _typer(help_text: str, kind: type[TyperGroup] = TyperGroup) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        invoke_without_command=True,
        rich_markup_mode="rich" if RICH_HELP else None,
        context_settings={"help_option_names": ["--help", "-h"]},
        cls=kind,
    )


app = _typer(_HELP, Root)
topologies = _typer("Create, compare or draw the topology.")
letters = _typer("Look at dead letters, send them back.")


@app.callback()
def root(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True)
    ] = False,
) -> None:
    """Show the help if no command is named; log only what a command does not say itself."""
    # What goes wrong becomes a sentence of its own; `run` logs as it is told to.
    logging.basicConfig(level=logging.CRITICAL)
    if show_version:
        version.show_version()
        raise typer.Exit
    _help_without_command(context)


@topologies.callback()
@letters.callback()
def _help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


app.command("run", help=run.HELP)(run.run)
app.command("call", help=call.HELP)(call.call)
app.command("publish", help=publish.HELP)(publish.publish)
app.add_typer(topologies, name="topology")
topologies.command("apply", help=topology.APPLY_HELP)(topology.apply)
topologies.command("check", help=topology.CHECK_HELP)(topology.check)
topologies.command("graph", help=topology.GRAPH_HELP)(topology.graph)
app.add_typer(letters, name="dlq")
letters.command("list", help=dlq.LIST_HELP)(dlq.list_letters)
letters.command("show", help=dlq.SHOW_HELP)(dlq.show)
letters.command("replay", help=dlq.REPLAY_HELP)(dlq.replay)
app.command("doctor", help=doctor.HELP)(doctor.doctor)
app.command("demo", help=demo.HELP)(demo.demo)
app.command("version", help=version.HELP)(version.show_version)


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    get_command(app).main()
