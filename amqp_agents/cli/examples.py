"""Help texts: what a command does, then examples, each on a line of its own."""

import sys

# On a terminal typer renders help with rich; elsewhere it must stay plain text.
RICH_HELP = sys.stdout.isatty()
_KEEP_LINES = "" if RICH_HELP else "\b\n"


def with_examples(text: str, *examples: str) -> str:
    """Return the help text of a command.

    >>> with_examples("Say it.", "amqp-agents version").splitlines()[-2:]
    ['Examples:', '  amqp-agents version']
    """
    lines = "\n".join(["Examples:", *(f"  {example}" for example in examples)])
    return f"{text}\n\n{_KEEP_LINES}{lines}"
