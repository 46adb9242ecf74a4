"""Every page runs: its files are written, its commands executed, its output compared.

In a page, a block ```` ```python file=my_agents.py ```` (or `yaml`) is a file; in a `console` block
a line `$ command` is run in a shell, and what follows is what it printed. `…` stands for any
text within a line, a line `…` for any lines. A command ending in `&` runs until the page ends;
its log (stderr) is not compared.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.nodes.endpoint import Endpoint

pytestmark = pytest.mark.rabbitmq

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT_SECONDS = 30


@dataclass
class Command:
    """One command of a page, and what the page says it prints."""

    line: str
    expected: list[str] = field(default_factory=list)


def blocks(page: Path) -> Iterator[tuple[str, str | None, str]]:
    """Yield (language, file, text) of each fenced block."""
    for match in BLOCK.finditer(page.read_text()):
        yield match[1], match[2], match[3]


def commands(text: str) -> list[Command]:
    """Return the commands of a console block; a line ending in a backslash goes on."""
    found: list[Command] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            whole = line[2:]
            while whole.endswith("\\"):
                whole = whole[:-1] + next(lines).strip()
            found.append(Command(whole))
        elif found:
            found[-1].expected.append(line)
    return found


def pattern(expected: list[str]) -> str:
    """Return what the page says a command prints, as a regular expression."""
    parts = []
    for line in expected:
        if line.strip() in ("…", "..."):
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(r".*?".join(map(re.escape, line.rstrip().split("…"))) + r" *\n")
    return "".join(parts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_the_page_runs_as_it_reads(page: Path, tmp_path: Path, rabbitmq: Endpoint) -> None:
    vhost = rabbitmq.create_vhost()
    shutil.copytree(ROOT / "topology", tmp_path / "topology")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AMQP_AGENTS_URL": rabbitmq.url_for(vhost),
        "AMQP_AGENTS_MANAGEMENT_URL": rabbitmq.management_url or "",
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "TERM": "dumb",
    }
    environment.pop("AMQP_AGENTS_TEST_URL", None)
    running: list[asyncio.subprocess.Process] = []
    try:
        for language, file, text in blocks(page):
            if file is not None:
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / file).write_text(text)
            elif language == "console":
                for command in commands(text):
                    await _run(command, tmp_path, environment, running)
    finally:
        for process in running:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            await asyncio.wait_for(process.wait(), 20)
        rabbitmq.delete_vhost(vhost)


async def _run(
    command: Command,
    folder: Path,
    environment: dict[str, str],
    running: list[asyncio.subprocess.Process],
) -> None:
    if command.line.startswith("make "):
        return  # these are the repository's own commands, which run this very test
    background = command.line.endswith("&")
    process = await asyncio.create_subprocess_shell(
        command.line.rstrip("& "),
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL if background else asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    wanted = re.compile(pattern(command.expected))
    if background:
        running.append(process)
        printed = ""
        while not wanted.fullmatch(printed):
            try:
                line = await asyncio.wait_for(process.stdout.readline(), LIMIT_SECONDS)
            except TimeoutError:
                line = b""
            assert line, f"`{command.line}` printed:\n{printed}\nthe page says:\n{command.expected}"
            printed += line.decode()
        return
    output, _ = await asyncio.wait_for(process.communicate(), LIMIT_SECONDS)
    printed = "".join(f"{line.rstrip()}\n" for line in output.decode().splitlines())
    assert wanted.fullmatch(printed), (
        f"`{command.line}` printed:\n{printed}\nthe page says:\n" + "\n".join(command.expected)
    )
