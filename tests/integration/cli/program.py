"""The command line as a real process: run it to its end, or start it and watch what it says."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[3]
LIMIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


class Running:
    """A command that goes on; what it says is read as it comes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._spoken = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
            if stream is not None
        ]
        for reader in self._readers:
            reader.start()

    @property
    def said(self) -> str:
        """Everything it printed so far, both streams."""
        with self._spoken:
            return "".join(self.lines)

    def until(self, text: str, *, times: int = 1, limit_seconds: float = LIMIT_SECONDS) -> str:
        """Wait until it has said `text` so often; return all it said."""
        return self.until_true(lambda said: said.count(text) >= times, text, limit_seconds)

    def until_true(
        self, is_enough: Callable[[str], bool], what: str, limit_seconds: float = LIMIT_SECONDS
    ) -> str:
        """Wait until what it said is enough."""
        with self._spoken:
            enough = self._spoken.wait_for(
                lambda: is_enough("".join(self.lines)), timeout=limit_seconds
            )
            said = "".join(self.lines)
        assert enough, f"it never said {what!r} within {limit_seconds} s, but:\n{said}"
        return said

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def ended(self, limit_seconds: float = LIMIT_SECONDS) -> tuple[int, float]:
        """Wait for its end; return the exit code and how long that took."""
        since = time.monotonic()
        code = self.process.wait(timeout=limit_seconds)
        took = time.monotonic() - since
        for reader in self._readers:
            reader.join(timeout=5.0)
        return code, took

    def kill(self) -> None:
        """End it for good, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=LIMIT_SECONDS)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._spoken:
                    self.lines.append(line)
                    self._spoken.notify_all()


@dataclass
class Program:
    """`amqp-agents` in a folder of its own, with an environment of its own."""

    folder: Path
    environment: Mapping[str, str]
    started: list[Running] = field(default_factory=list)

    def __call__(
        self,
        *arguments: str,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> Ended:
        """Run a command to its end."""
        since = time.monotonic()
        done = subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=limit_seconds,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - since)

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, read_out: bool = True
    ) -> Running:
        """Start a command that goes on; it is killed at the end of the test.

        Without `read_out` nobody is at the other end of its standard output.
        """
        process = subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not read_out and process.stdout is not None:
            process.stdout.close()
            process.stdout = None
        running = Running(process)
        self.started.append(running)
        return running

    def close(self) -> None:
        """End whatever still runs."""
        for running in self.started:
            running.kill()

    @staticmethod
    def _command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "amqp_agents", *arguments]


def environment(url: str, management_url: str) -> dict[str, str]:
    """The environment of a user who has set nothing but where RabbitMQ is."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "AMQP_AGENTS_URL": url,
        "AMQP_AGENTS_MANAGEMENT_URL": management_url,
    }
