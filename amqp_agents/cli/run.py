"""`amqp-agents run`: the agents of an app, in this process or in several supervised ones."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from amqp_agents.cli.connecting import AsJson, Url, connected, run_async
from amqp_agents.cli.examples import with_examples
from amqp_agents.cli.logs import Level, start_logging
from amqp_agents.cli.output import say
from amqp_agents.cli.stopping import Stopping
from amqp_agents.cli.supervising import Supervisor, WorkerCommand
from amqp_agents.cli.target import load_app
from amqp_agents.cli.worker import Worker
from amqp_agents.config import Settings, load_settings

HELP = with_examples(
    "Run the agents of an app. SIGTERM or Ctrl+C drains it, a second one ends it at once. "
    "Exit code 0 after a drain, also if the grace period ended it; 1 after a second signal.",
    "amqp-agents run --declare my_agents:app",
    "amqp-agents run my_agents:app --workers 4 --grace 60 --log-json",
    "amqp-agents run my_agents:app --declare --reload --log-level debug",
)
# The supervisor needs its own moment after the last worker has ended, or was killed.
SUPERVISOR_AFTER_GRACE_SECONDS = 4.0


Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="Where the AgentApp is; the working directory is importable.",
        show_default=False,
    ),
]
Declare = Annotated[
    bool, typer.Option("--declare", help="Create what is missing on the broker first.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, max=256, help="Processes, each restarted when it dies.", show_default=False
    ),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Restart when a .py file below here changes.")
]
Grace = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=86_400,
        help="Seconds that running handlers get to finish; AMQP_AGENTS_GRACE_SECONDS, or 30.",
        show_default=False,
    ),
]
LogLevel = Annotated[Level, typer.Option(help="How much is logged to stderr.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log JSON, a line each.")]
Supervised = Annotated[int | None, typer.Option(hidden=True)]


def run(  # noqa: PLR0913 - one parameter for each option
    target: Target,
    declare: Declare = False,
    url: Url = None,
    workers: Workers = None,
    reload: Reload = False,
    grace: Grace = None,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
    supervised: Supervised = None,
    as_json: AsJson = False,
) -> None:
    """Run the agents of an app until a signal."""
    start_logging(log_level, as_json=log_json)
    settings = load_settings(url=url, grace_seconds=grace)
    if supervised is None and (workers is not None or reload):
        supervisor = _Supervised(target, settings, declare=declare, reload=reload, as_json=as_json)
        options = [f"--log-level={log_level.value}", *(["--log-json"] if log_json else [])]
        raise typer.Exit(supervisor.run(workers or 1, options))
    stopping = Stopping(settings.grace_seconds)
    stopping.install()
    if supervised is not None:
        stopping.watch_parent()
    worker = Worker(
        load_app(target),
        settings,
        declare=declare,
        name="run" if supervised is None else f"run-{supervised}",
        quiet=supervised is not None and not reload,
        as_json=as_json,
    )
    raise typer.Exit(run_async(worker.run(stopping)))


class _Supervised:
    """An app in several processes. Without `reload` a fault of it is told before any starts."""

    def __init__(
        self, target: str, settings: Settings, *, declare: bool, reload: bool, as_json: bool
    ) -> None:
        self._target, self._settings = target, settings
        self._declare, self._reload, self._as_json = declare, reload, as_json

    def run(self, count: int, options: list[str]) -> int:
        """Run `count` workers until a signal; return the exit code."""
        grace = self._settings.grace_seconds
        stopping = Stopping(grace, after_grace_seconds=SUPERVISOR_AFTER_GRACE_SECONDS)
        stopping.install()
        if self._reload:
            options += ["--reload", *(["--declare"] if self._declare else [])]
            options += ["--json"] if self._as_json else []
        else:
            run_async(self._tell_start())
            if not self._as_json:
                say(f"workers   {count}, each restarted when it dies")
        command = WorkerCommand(
            [sys.executable, "-m", "amqp_agents", "run", self._target, *options],
            {
                "AMQP_AGENTS_URL": self._settings.url.get_secret_value(),
                "AMQP_AGENTS_GRACE_SECONDS": str(grace),
            },
            grace,
        )
        watched = Path.cwd() if self._reload else None
        supervisor = Supervisor(command, count, stopping=stopping, watched=watched)
        return run_async(supervisor.run())

    async def _tell_start(self) -> None:
        worker = Worker(load_app(self._target), self._settings, declare=self._declare)
        async with connected(self._settings) as broker:
            start = await worker.prepare(broker)
        start.say(as_json=self._as_json)
