"""A private RabbitMQ node on 127.0.0.1: plain processes, own ports, folder, cookie and epmd."""

import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tests.nodes.group import Group
from tests.nodes.layout import Layout
from tests.nodes.management import Management
from tests.nodes.obtain import server
from tests.nodes.ports import Ports, listens
from tests.nodes.processes import Child, Process

PLUGINS = ("rabbitmq_management", "rabbitmq_prometheus")

_START_LIMIT_SECONDS = 120.0
_STOP_LIMIT_SECONDS = 30.0
_CTL_LIMIT_SECONDS = 60.0
_PORT_TRIES = 3
_BOOTED = "completed with"


class NodeFailed(RuntimeError):  # noqa: N818 - reads as a state of the node
    """A node did not start, or a command on it failed; the message holds the end of its log."""


class Node:
    """One RabbitMQ node; `with Node("3.10") as node:` starts it and leaves nothing behind.

    Every call blocks: async code goes through `asyncio.to_thread`. `conf` holds further lines of
    rabbitmq.conf. Without a `group` the node gets its own at its first start, which installs the
    server where it is missing.
    """

    def __init__(
        self,
        version: str = "system",
        *,
        name: str = "rabbit",
        plugins: tuple[str, ...] = PLUGINS,
        conf: str = "",
        group: Group | None = None,
    ) -> None:
        self.name = f"{name}@localhost"
        self.ports = Ports()
        self._wanted = version
        self._plugins = plugins
        self._conf = conf
        self._shared = group is not None
        self._group = group
        self._child: Child | None = None
        self._detached = False

    @property
    def url(self) -> str:
        """The AMQP URL of the default vhost as guest."""
        return self.url_for("/")

    def url_for(self, vhost: str, user: str = "guest", password: str = "guest") -> str:
        """The AMQP URL of `vhost` for a user."""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        path = "" if vhost == "/" else quote(vhost, safe="")
        return f"amqp://{login}@127.0.0.1:{self.ports.amqp}/{path}"

    @property
    def management_url(self) -> str:
        """The management API's URL, without /api."""
        return f"http://127.0.0.1:{self.ports.management}"

    @property
    def prometheus_url(self) -> str:
        """Where the node's own metrics are scraped."""
        return f"http://127.0.0.1:{self.ports.prometheus}/metrics"

    @property
    def management(self) -> Management:
        """The management API as guest."""
        return Management(self.management_url)

    @property
    def group(self) -> Group:
        """The group it belongs to. Raises: NodeFailed before the first start."""
        if self._group is None:
            raise NodeFailed(
                f"{self.name} was never started: call start(), or use it in a with block"
            )
        return self._group

    @property
    def version(self) -> str:
        """The server's full version, as 3.10.8."""
        return self.group.server.version

    @property
    def folder(self) -> Path:
        """Its own folder; gone after `close`."""
        return self.group.folder / self.name.partition("@")[0]

    @property
    def process(self) -> Process:
        """The Erlang VM that runs now, or ran last."""
        if self._child is None:
            raise NodeFailed(
                f"{self.name} was never started: call start(), or use it in a with block"
            )
        return self._child.process

    @property
    def pid(self) -> int:
        """The pid of the Erlang VM that runs now, or ran last."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether its Erlang VM is alive; it may still be starting."""
        return self._child is not None and self._child.alive

    def create_vhost(self, name: str | None = None) -> str:
        """A new vhost in which guest may do everything; returns its name."""
        return self.management.create_vhost(name)

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost and all in it."""
        self.management.delete_vhost(name)

    def start(self, limit_seconds: float = _START_LIMIT_SECONDS) -> Self:
        """Start it, after a stop or kill on the same ports and data; returns once it has booted.

        Raises: NodeFailed with the end of the log; NodeUnavailable when no server can be had.
        """
        first = self._child is None
        if self._group is None:
            self._group = Group(server(self._wanted))
        for tries_left in reversed(range(_PORT_TRIES if first else 1)):
            self._launch()
            if self._wait_booted(limit_seconds):
                return self
            said = self.log_tail()
            self.kill()
            if not (tries_left and "eaddrinuse" in said):
                break
            self.ports = Ports()
        raise NodeFailed(f"{self.name} ({self.version}) did not start; its log ends:\n{said}")

    def stop(self, limit_seconds: float = _STOP_LIMIT_SECONDS) -> None:
        """Shut it down in good order, or kill it after the limit; `start` finds data and ports."""
        self._end(limit_seconds)
        self.group.end_epmd_if_alone()

    def kill(self) -> None:
        """SIGKILL the Erlang VM, as a crash would; epmd and the data stay for `start`."""
        self._end(0)

    def restart(self) -> None:
        """Stop in good order and start on the same ports and data."""
        self._end(_STOP_LIMIT_SECONDS)
        self.start()

    def detach(self) -> None:
        """Let it run on after this process, until `python -m tests.nodes stop GROUP_FOLDER`."""
        self.group.hand_over()
        self._detached = True

    def close(self) -> None:
        """End it at once and, unless others share its group, epmd and the folder with it."""
        if self._group is None or self._detached:
            return
        self.kill()
        if self._shared:
            self._group.end_epmd_if_alone()
        else:
            self._group.close()

    def ctl(self, *arguments: str, program: str = "rabbitmqctl") -> str:
        """The output of rabbitmqctl, or another program of the server, run on this node.

        Raises: NodeFailed with what it printed.
        """
        self.group.run_epmd()
        path = str(self.group.server.programs / program)
        try:
            done = subprocess.run(
                self.group.command(path, "-q", "-n", self.name, *arguments),
                env={**self.group.environment, **self._layout.environment(self.name, self.ports)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_CTL_LIMIT_SECONDS,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            command = f"{program} {' '.join(arguments)}"
            raise NodeFailed(f"{command} on {self.name} failed: {error.output}") from error
        return done.stdout

    def log_tail(self, characters: int = 2000) -> str:
        """The end of the node's output and of its log."""
        return self._layout.tail(characters)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _layout(self) -> Layout:
        return Layout(self.folder, self._plugins, self._conf)

    def _launch(self) -> None:
        if self.running:
            raise NodeFailed(f"{self.name} runs already: stop() or kill() it before start()")
        layout = self._layout
        layout.write(self.ports)
        self.group.run_epmd()
        self._child = self.group.spawn(
            self.folder.name,
            [str(self.group.server.programs / "rabbitmq-server")],
            env=layout.environment(self.name, self.ports),
            output=layout.output,
        )

    def _wait_booted(self, limit_seconds: float) -> bool:
        """The AMQP port opens a little before the boot is complete, and a stop then disturbs it."""
        output = self._layout.output
        until = time.monotonic() + limit_seconds
        while self.running and time.monotonic() < until:
            if _BOOTED in output.read_text(errors="replace") and listens(self.ports.amqp):
                return True
            time.sleep(0.05)
        return False

    def _end(self, grace_seconds: float) -> None:
        if self._child is not None:
            self._child.end(grace_seconds=grace_seconds)
