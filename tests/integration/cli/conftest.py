"""A folder with an app in it, and the command line run there against a vhost of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.program import Program, environment
from tests.nodes.endpoint import Endpoint

AGENTS = """\
import asyncio
import os
import time

from pydantic import BaseModel

from amqp_agents import AgentApp, agent


class Draft(BaseModel):
    text: str = ""
    seconds: float = 0.0


class Review(BaseModel):
    risk_level: str
    pid: int = 0


@agent("quality_agent")
async def review(draft: Draft) -> Review:
    print(f"started {draft.text}", flush=True)
    await asyncio.sleep(draft.seconds)
    print(f"finished {draft.text}", flush=True)
    return Review(risk_level="high" if "refund" in draft.text else "low", pid=os.getpid())


@agent("blocking_agent")
def block(draft: Draft) -> Review:
    print(f"started {draft.text}", flush=True)
    time.sleep(draft.seconds)
    return Review(risk_level="low")


app = AgentApp([review, block])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with `my_agents.py`."""
    (tmp_path / "my_agents.py").write_text(AGENTS)
    return tmp_path


@pytest.fixture
def program(folder: Path, rabbitmq: Endpoint, vhost_url: str) -> Iterator[Program]:
    """The command line in `folder`, on a vhost that nobody else uses."""
    running = Program(folder, environment(vhost_url, rabbitmq.management_url))
    yield running
    running.close()


@pytest.fixture
def offline(folder: Path) -> Iterator[Program]:
    """The command line in `folder`, where no RabbitMQ answers."""
    running = Program(
        folder, environment("amqp://guest:pa55word@127.0.0.1:9/", "http://127.0.0.1:9")
    )
    yield running
    running.close()
