"""The public API has the types its readers expect, and refuses what cannot work."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from amqp_agents.agent import BoundHandler
from amqp_agents.clock import ManualClock
from amqp_agents.context import Context
from amqp_agents.protocol import AgentMessage, AgentRef
from tests.types import use
from tests.types.my_agents import Draft, Review, review

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IGNORED = re.compile(r"  # type: ignore\[([a-z, -]+)\]")


def expected(source: str) -> set[tuple[int, str]]:
    """Which line says that it has which error."""
    return {
        (number, code)
        for number, line in enumerate(source.splitlines(), 1)
        for found in IGNORED.findall(line)
        for code in found.split(", ")
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[int, str]]]:
    """What mypy finds, by file: in the uses, and in the wrong uses when none is ignored."""
    naked = tmp_path_factory.mktemp("types") / "naked.py"
    naked.write_text(IGNORED.sub("", (HERE / "bad.py").read_text()))
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    files = [str(HERE / "use.py"), str(HERE / "my_agents.py"), str(naked)]
    ran = subprocess.run([*mypy, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    errors: dict[str, set[tuple[int, str]]] = {}
    for line in ran.stdout.splitlines():
        error = re.match(r"(?:.*/)?([a-z_]+\.py):(\d+): error: .*\[([a-z-]+)\]$", line)
        if error is not None:
            errors.setdefault(error[1], set()).add((int(error[2]), error[3]))
    return errors


@pytest.mark.parametrize("file", ["use.py", "my_agents.py"])
def test_every_use_has_the_type_it_asserts(
    file: str, found: dict[str, set[tuple[int, str]]]
) -> None:
    assert found.get(file, set()) == set()


def test_every_wrong_use_is_an_error_of_its_kind_and_nothing_else_is(
    found: dict[str, set[tuple[int, str]]],
) -> None:
    wrong = expected((HERE / "bad.py").read_text())
    assert len(wrong) > 15
    assert found.get("naked.py", set()) == wrong


async def test_every_use_runs() -> None:
    await use.main()


async def test_a_declared_function_is_the_function_in_a_unit_test() -> None:
    message = AgentMessage(sender="a", recipient="b", type="message")
    context = Context(message, sender=AgentRef("b"), asking=Answers(), clock=ManualClock())
    await use.unit(context)
    assert [sent.intent for sent in context.outbox] == ["draft.reviewed"]
    assert isinstance(review, BoundHandler)
    assert await review(Draft(text="refund")) == Review(risk_level="high")
    assert use.count(Draft(text="four")) == use.Other(n=4)


class Answers:
    """Answers whatever is asked, without a broker."""

    async def ask(self, target: object, payload: object, **options: object) -> BaseModel:
        return Review(risk_level="low")

    async def send(self, message: AgentMessage, *, depth: int) -> None:
        raise AssertionError(f"nothing is sent at depth {depth}")
