"""The root of the command line: every way it can end becomes an exit code and a sentence.

0 fine · 1 an error, wrong usage included · 2 `topology check` found differences · 130 Ctrl+C
"""

import json
import logging
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from amqp_agents.cli.error_text import error_json, sentences_of
from amqp_agents.cli.output import console

PROGRAM = "amqp-agents"
FINE, ERROR, DIFFERENCES, INTERRUPTED = 0, 1, 2, 130

logger = logging.getLogger("amqp_agents")


class Ending:
    """Around a command: says what went wrong on stderr, and ends with the exit code for it."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(INTERRUPTED) from None
        if isinstance(error, typer.Abort):
            self._say("\nerror: nothing was done: no answer came; say --yes instead of answering")
            raise SystemExit(ERROR) from None
        if isinstance(error, Exception):
            self._report(error)
            raise SystemExit(ERROR) from None

    def _report(self, error: Exception) -> None:
        logger.debug("traceback", exc_info=error)
        for sentence in sentences_of(error):
            self._say(f"error: {sentence}")
        if self._as_json:
            sys.stdout.write(f"{json.dumps(error_json(error), ensure_ascii=False)}\n")

    @staticmethod
    def _say(line: str) -> None:
        console(stderr=True).print(line, soft_wrap=True)


class Root(TyperGroup):
    """The commands, ending as documented: click's own exit code 2 becomes 1."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command. Raises: SystemExit, always."""
        given = sys.argv[1:] if args is None else list(args)
        with Ending(as_json="--json" in given):
            code = super().main(given, PROGRAM, complete_var, standalone_mode=False, **extra)
        raise SystemExit(code if isinstance(code, int) else FINE)
