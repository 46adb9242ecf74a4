"""The examples run, print what their page says, and stay small."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RUNNABLE = sorted(EXAMPLES.glob("0*.py"))
MAX_LINES = 60
DOZEN_LINES = """\
from pydantic import BaseModel
from amqp_agents import AgentApp, agent
class Draft(BaseModel):
    text: str
class Review(BaseModel):
    risk_level: str
@agent("quality_agent")
async def review(draft: Draft) -> Review:
    return Review(risk_level="high" if "refund" in draft.text else "low")
app = AgentApp([review])
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AMQP_")},
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("example", RUNNABLE, ids=lambda path: path.stem)
def test_an_example_prints_what_is_expected(example):
    done = python(str(example))
    assert done.returncode == 0, done.stderr
    expected = EXAMPLES / "expected" / f"{example.stem}.txt"
    assert done.stdout == expected.read_text(encoding="utf-8")


def test_every_example_is_numbered_listed_and_has_an_expected_output():
    assert [path.name[:2] for path in RUNNABLE] == ["01", "02", "03", "04", "05", "06"]
    outputs = {path.stem for path in (EXAMPLES / "expected").iterdir()}
    assert outputs == {path.stem for path in RUNNABLE}
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f"`{path.name}`" in index


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_has_at_most_60_lines(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_the_first_example_is_the_dozen_lines_word_for_word():
    text = (EXAMPLES / "01_first_agent.py").read_text(encoding="utf-8")
    assert DOZEN_LINES in "".join(line for line in text.splitlines(keepends=True) if line.strip())


def test_the_example_of_a_test_passes():
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_first_agent.py")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_example_with_the_plugin_passes_without_pytest_asyncio():
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-c", os.devnull]
    options += ["--rootdir", str(EXAMPLES)]
    installed = any(found.name == "amqp_agents" for found in entry_points(group="pytest11"))
    plugin = ["-p", "amqp_agents" if installed else "pytest_amqp_agents"]
    done = python("-m", "pytest", *options, *plugin, "examples/test_with_the_plugin.py")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
