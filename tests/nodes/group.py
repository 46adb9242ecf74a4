"""One folder, cookie and epmd for the nodes that may talk to each other."""

import atexit
import os
import secrets
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from tests.nodes.obtain import Server
from tests.nodes.ports import free_port, listens
from tests.nodes.processes import Child, Process
from tests.nodes.stale import clear_stale, end_group, run_folder

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin"
_EPMD_LIMIT_SECONDS = 20
_ENTER = """
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mkdir -p "$1$2"
mount --bind "$2" "$1$2"
root=$1
shift 2
exec chroot "$root" "$@"
"""

_open_groups: set["Group"] = set()


class Group:
    """The nodes of one owner that share an epmd.

    The groups of this process are closed when it exits; those of a killed process by its guard,
    else by the next process that makes a group.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        run = run_folder()
        clear_stale(run)
        self.guard = Process.of(_guard(str(run), os.getpid()).pid)
        self.folder = run / f"{server.version}-{secrets.token_hex(4)}"
        self._epmd_port = free_port()
        self._epmd: Child | None = None
        self._create_folder()
        _open_groups.add(self)

    @property
    def environment(self) -> dict[str, str]:
        """What every program of the group runs with, and nothing of the caller's environment.

        Erlang is told to start no epmd: one that is not on record would outlive everything.
        """
        return {
            "HOME": str(self.folder),
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_FLAGS": "-start_epmd false",
        }

    @property
    def epmd(self) -> Process | None:
        """The epmd process, or None while no node needs it."""
        return self._epmd.process if self._epmd else None

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs `arguments` where the server lives.

        In a chroot the mounts are private to that process: nothing stays mounted after it.
        """
        if not self.server.in_chroot:
            return list(arguments)
        places = (str(self.server.root), str(self.folder.parent))
        return ["unshare", "--mount", "--", "sh", "-ec", _ENTER, "sh", *places, *arguments]

    def spawn(self, name: str, command: list[str], *, env: dict[str, str], output: Path) -> Child:
        """Start a program of the server as a child on record under `name`."""
        return Child(
            self.command(*command),
            env={**self.environment, **env},
            output=output,
            record=self.folder / "processes" / f"{name}.json",
        )

    def run_epmd(self) -> None:
        """Have the group's own epmd up; returns when it answers, or has failed to."""
        if self._epmd is not None and self._epmd.alive:
            return
        command = ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        self._epmd = self.spawn("epmd", command, env={}, output=self.folder / "epmd.log")
        until = time.monotonic() + _EPMD_LIMIT_SECONDS
        while not listens(self._epmd_port) and self._epmd.alive and time.monotonic() < until:
            time.sleep(0.02)

    def end_epmd_if_alone(self) -> None:
        """End epmd unless a node of the group is still on record."""
        records = {file.stem for file in (self.folder / "processes").glob("*.json")}
        if records <= {"epmd"} and self._epmd is not None:
            self._epmd.end(grace_seconds=0)
            self._epmd = None

    def hand_over(self) -> None:
        """Let the processes run on when this one ends, until `end_group` of the folder."""
        (self.folder / "detached").touch()
        _open_groups.discard(self)

    def close(self) -> None:
        """End what still runs, at once, and delete the folder."""
        _open_groups.discard(self)
        if self._epmd is not None:
            self._epmd.end(grace_seconds=0)
            self._epmd = None
        end_group(self.folder)

    def _create_folder(self) -> None:
        unfinished = self.folder.with_name(f".{self.folder.name}")
        unfinished.mkdir(mode=0o700)
        (unfinished / "processes").mkdir()
        cookie = unfinished / ".erlang.cookie"
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        Process.of(os.getpid()).save(unfinished / "owner.json")
        unfinished.rename(self.folder)


@cache
def _guard(run: str, owner_pid: int) -> subprocess.Popen[bytes]:
    """One guard per process, a fork included; it goes when the pipe held here closes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.nodes.guard", run, str(owner_pid)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@atexit.register
def _close_open_groups() -> None:
    for group in list(_open_groups):
        group.close()
