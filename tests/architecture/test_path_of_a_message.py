"""How much of the package one has to know to follow one message."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import amqp_agents
from amqp_agents.agent import agent
from amqp_agents.protocol import AgentMessage
from tests.unit.stage import Draft, Stage, on_stage

PACKAGE = Path(amqp_agents.__file__).parent
ELSEWHERE = "brokers/memory/"
PURE_ROOMS = ("protocol/", "topology/", "routing/", "observability/")
FAMILIES = ("middleware/",)  # one interface: who knows one of them knows how to read the others
MAX_FILES = 15


@agent("quality")
async def review(draft: Draft) -> None: ...


@contextmanager
def touched() -> Iterator[set[str]]:
    """The files of the package in which something is called meanwhile."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


async def handled(stage: Stage) -> None:
    """Let the agent handle one message, from its arrival to its ack."""
    stage.journal.entries.clear()
    message = AgentMessage(sender="x", recipient="quality", type="message")
    await stage.put(message, "quality")
    await stage.journal.until(lambda: stage.journal.what("quality") == ["handled"])


@pytest.fixture
async def path() -> set[str]:
    """The files one message touches, outside of the broker in memory."""
    async with on_stage(review) as stage:
        await handled(stage)  # the first of all also fills caches
        with touched() as files:
            await handled(stage)
    return {file for file in files if not file.startswith(ELSEWHERE)}


def test_one_message_goes_through_few_stations_and_rooms(path: set[str]) -> None:
    stops = {
        next((room for room in PURE_ROOMS + FAMILIES if file.startswith(room)), file)
        for file in path
    }
    assert len(stops) <= MAX_FILES, f"{len(stops)} stops: {', '.join(sorted(stops))}"
