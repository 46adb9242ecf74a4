"""The size and the shape of the house itself."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import amqp_agents

PACKAGE = Path(amqp_agents.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

MAX_FILE_LINES, MAX_MIDDLEWARE_LINES = 400, 100
MAX_FUNCTION_LINES, USUAL_FUNCTION_LINES, USUAL_SHARE = 40, 25, 0.95
MAX_EXPORTS = 40
FORBIDDEN_NAMES = {
    "utils",
    "helpers",
    "common",
    "core",
    "manager",
    "service",
    "base_service",
    "misc",
}

CATCHES_EXCEPTION = {"consumer.py"}
KEEPS_BASE_EXCEPTION = {
    "consumer.py": "sys.exit() in a handler must not end the worker",
    "handling.py": "what a thread raises is carried over to the loop, whatever it is",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sized(NamedTuple):
    """One function, and how long it is."""

    place: str
    lines: int


def named(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def functions() -> list[Sized]:
    """Every function of the package, nested ones included."""
    return [
        Sized(f"{named(file)}:{node.lineno} {node.name}", lines_of(node, file))
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, Function)
    ]


def lines_of(function: Function, file: Path) -> int:
    """How long a function is; the signature of a command is the table of its options."""
    command = file.parent.name == "cli" and function.col_offset == 0
    first = function.body[0].lineno if command else function.lineno
    return (function.end_lineno or 0) - first + 1


def handlers_of(file: Path, name: str) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if name in [one.id for one in caught if isinstance(one, ast.Name)]:
                yield node


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_file_fits_in_one_reading(file: Path) -> None:
    middleware = file.parent.name == "middleware"
    lines = len(file.read_text().splitlines())
    assert lines <= (MAX_MIDDLEWARE_LINES if middleware else MAX_FILE_LINES)


def test_a_function_fits_on_a_screen() -> None:
    assert [sized for sized in functions() if sized.lines > MAX_FUNCTION_LINES] == []


def test_nearly_every_function_is_short() -> None:
    every = functions()
    long = [sized for sized in every if sized.lines > USUAL_FUNCTION_LINES]
    assert 1 - len(long) / len(every) >= USUAL_SHARE, sorted(long, key=lambda sized: -sized.lines)


def test_the_public_names_are_few_sorted_and_there() -> None:
    exported = amqp_agents.__all__
    assert list(exported) == sorted(set(exported))
    assert len(exported) < MAX_EXPORTS
    assert [name for name in exported if not hasattr(amqp_agents, name)] == []


def test_every_public_name_is_imported_from_where_it_lives() -> None:
    imported = {
        alias.asname or alias.name
        for node in tree_of(PACKAGE / "__init__.py").body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported - set(amqp_agents.__all__) - {"__version__"} == set()


@pytest.mark.parametrize("file", FILES, ids=named)
def test_what_is_public_says_what_it_is(file: Path) -> None:
    tree = tree_of(file)
    silent = [named(file)] if tree.body and ast.get_docstring(tree) is None else []
    silent += [
        f"{named(file)}:{node.lineno} {node.name}"
        for node in tree.body
        if isinstance(node, Function | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert silent == []


@pytest.mark.parametrize("file", FILES, ids=named)
def test_no_work_is_left_for_later_in_a_comment(file: Path) -> None:
    assert re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b", file.read_text()) == []


@pytest.mark.parametrize("file", FILES, ids=named)
def test_types_are_real_when_the_program_runs(file: Path) -> None:
    source = file.read_text()
    assert not re.search(r"^\s*from __future__ import annotations", source, re.MULTILINE)
    assert not re.search(r"^\s*if (?:typing\.)?TYPE_CHECKING", source, re.MULTILINE)


@pytest.mark.parametrize("file", FILES, ids=named)
def test_every_file_has_a_name_that_says_what_is_in_it(file: Path) -> None:
    assert not {part.removesuffix(".py") for part in file.relative_to(PACKAGE).parts} & (
        FORBIDDEN_NAMES
    )


def test_one_place_catches_every_exception() -> None:
    places = [named(file) for file in FILES for _ in handlers_of(file, "Exception")]
    assert places == sorted(CATCHES_EXCEPTION)


def test_what_is_no_exception_is_kept_only_where_there_is_a_reason() -> None:
    kept = [
        named(file)
        for file in FILES
        for handler in handlers_of(file, "BaseException")
        if not (isinstance(last := handler.body[-1], ast.Raise) and last.exc is None)
    ]
    assert sorted(kept) == sorted(KEEPS_BASE_EXCEPTION)


def test_nothing_is_caught_without_a_name() -> None:
    bare = [
        f"{named(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    hidden = [
        named(file) for file in FILES if re.search(r"suppress\(\w*Exception\)", file.read_text())
    ]
    assert bare + hidden == []


def test_a_cancellation_that_is_caught_is_raised_again_or_translated() -> None:
    swallowed = [
        f"{named(file)}:{handler.lineno}"
        for file in FILES
        if not named(file).startswith("brokers/rabbitmq/")  # the library raises it for its own ends
        for handler in handlers_of(file, "CancelledError")
        if not any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    ]
    assert swallowed == []
