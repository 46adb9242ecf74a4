"""Processes this package started: told apart from later ones of the same pid, ended by pid."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process by pid and start time; a pid alone may have gone to somebody else meanwhile."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The living process `pid`; if there is none, a Process that is not alive."""
        return cls(pid, _started(pid) or "")

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        return self.started != "" and _started(self.pid) == self.started

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens when it is gone."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_gone(self, limit_seconds: float) -> bool:
        """Wait until it is gone; False when the limit passed first."""
        until = time.monotonic() + limit_seconds
        while self.alive:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def end(self, *, grace_seconds: float) -> None:
        """SIGTERM, then SIGKILL after the grace; without grace SIGKILL at once."""
        if grace_seconds > 0:
            self.signal(signal.SIGTERM)
            if self.wait_gone(grace_seconds):
                return
        self.signal(signal.SIGKILL)
        self.wait_gone(10)

    def save(self, file: Path) -> None:
        """Record it in `file`, whole or not at all."""
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.replace(file)

    @classmethod
    def load(cls, file: Path) -> "Process | None":
        """The recorded process; None when there is no record, or no readable one."""
        try:
            values = json.loads(file.read_text())
            return cls(int(values["pid"]), str(values["started"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None


class Child:
    """A child of this process in a session of its own, its output in a file, its pid on record.

    It outlives this process unless it is ended: the record is how a later process finds it.
    """

    def __init__(
        self, command: Sequence[str], *, env: dict[str, str], output: Path, record: Path
    ) -> None:
        with output.open("ab") as sink:
            self._popen = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.process = Process.of(self._popen.pid)
        self._record = record
        self.process.save(record)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._popen.poll() is None

    def end(self, *, grace_seconds: float) -> None:
        """SIGTERM, SIGKILL after the grace, and the record removed."""
        if grace_seconds > 0 and self.alive:
            self._popen.terminate()
            try:
                self._popen.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                self._popen.kill()
        self._popen.kill()
        self._popen.wait(10)
        self._record.unlink(missing_ok=True)


def _started(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    return None if fields[0] in "ZX" else fields[19]


def _started_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    state, _, started = (
        subprocess.run(command, capture_output=True, text=True, check=False)
        .stdout.strip()
        .partition(" ")
    )
    return None if state.startswith("Z") else started.strip() or None
