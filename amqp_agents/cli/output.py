"""Writing to the terminal: colours and boxes only where a person looks, plain text elsewhere."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from amqp_agents.cli.error_text import printable

BORDERS, LAST = 3, 24  # the room a column's frame takes, and the least the last column gets

Advance = Callable[[], None]


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints what it is given: no markup, nothing highlighted."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def say(line: str = "") -> None:
    """Print one line of a result, never wrapped."""
    console().print(printable(line), soft_wrap=True)


def note(line: str) -> None:
    """Print a line about the result, on stderr, so that it is no part of it."""
    console(stderr=True).print(printable(line), soft_wrap=True)


def say_json(value: Any) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(f"{json.dumps(value, ensure_ascii=False, default=_written)}\n")
    sys.stdout.flush()


def pretty(value: Any) -> str:
    """Return JSON for people.

    >>> print(pretty({"risk_level": "high"}))
    {
      "risk_level": "high"
    }
    """
    return json.dumps(value, ensure_ascii=False, indent=2, default=_written)


def say_pretty(value: Any) -> None:
    """Print JSON for people, coloured on a terminal."""
    target = console()
    if target.is_terminal:
        target.print_json(pretty(value))
    else:
        say(pretty(value))


def say_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows: a table where a person looks and it fits, else aligned columns.

    The last column may be wrapped in a table; nothing is ever cut.
    """
    target = console()
    clean = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *clean, strict=True)]
    if not target.is_terminal or sum(widths[:-1]) + BORDERS * len(widths) + LAST > target.width:
        for line in aligned([list(columns), *clean]):
            say(line)
        return
    table = Table(header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=name != columns[-1], overflow="fold")
    for row in clean:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    target.print(table)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as a line, its columns under each other.

    >>> aligned([["agent", "id"], ["a", "1"]])
    ['agent  id', 'a      1']
    """
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


@contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Show a bar on stderr while something long goes on; nothing where nobody looks."""
    target = console(stderr=True)
    if not target.is_terminal or total == 0:
        yield lambda: None
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=target,
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def counted(number: int, what: str) -> str:
    """Return how many of something there are.

    >>> counted(1, "dead letter"), counted(3, "dead letter")
    ('1 dead letter', '3 dead letters')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """Return a length of time, as precise as it matters.

    >>> span(5), span(90), span(7200), span(3 * 86400)
    ('5 s', '1 min', '2 h', '3 d')
    """
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(max(0.0, seconds))} s"


def _written(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)
