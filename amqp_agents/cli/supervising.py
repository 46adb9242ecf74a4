"""Several worker processes under one: restarted when they die or the source changes.

Each worker leads a session of its own, so that Ctrl+C reaches the supervisor alone, and holds
the read end of a pipe as its stdin: if the supervisor is killed, the workers drain and end.
"""

import asyncio
import logging
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from amqp_agents.cli.stopping import Stopping
from amqp_agents.cli.watching import next_change, snapshot

logger = logging.getLogger("amqp_agents")

BACKOFF_SECONDS, BACKOFF_CAP_SECONDS = 0.5, 30.0
STEADY_SECONDS = 30.0  # a worker that lived so long does not belong to a series of deaths
KILL_AFTER_SECONDS = 1.8  # beyond the grace; a worker ends itself at 1.5


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """How a worker is started; its number is appended."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    grace_seconds: float

    async def start(self, number: int) -> Process:
        """Start worker `number`."""
        return await asyncio.create_subprocess_exec(
            *self.arguments,
            f"--supervised={number}",
            env={**os.environ, **self.environment},
            stdin=PIPE,
            start_new_session=True,
        )


class Supervisor:
    """Keeps `count` workers running until it is told to stop.

    `watched` is a folder: a change of a .py file below it restarts the workers.
    """

    def __init__(
        self,
        command: WorkerCommand,
        count: int,
        *,
        stopping: Stopping,
        watched: Path | None = None,
    ) -> None:
        self._command, self._count = command, count
        self._stopping, self._watched = stopping, watched
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Return the exit code once every worker has ended: 0 if all drained cleanly."""
        self._stopping.attach()
        watching = None if self._watched is None else asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as group:
                keeping = [
                    group.create_task(self._keep(number)) for number in range(1, self._count + 1)
                ]
        finally:
            if watching is not None:
                watching.cancel()
        clean = all(task.result() for task in keeping)
        return 0 if clean and not self._stopping.hurried else 1

    async def _keep(self, number: int) -> bool:
        """Keep one worker running; return whether the last one ended cleanly."""
        deaths = 0
        while not self._stopping.until.is_set():
            changed, started = self._changed, time.monotonic()
            worker = await self._command.start(number)
            _log("worker_started", number, pid=worker.pid)
            await self._first(asyncio.create_task(worker.wait()), changed)
            if worker.returncode is None or self._stopping.until.is_set():
                clean = await self._end(worker, number)
                if self._stopping.until.is_set():
                    return clean
                continue
            deaths = 1 if time.monotonic() - started > STEADY_SECONDS else deaths + 1
            await self._after_death(worker, number, deaths, changed)
        return True

    async def _after_death(
        self, worker: Process, number: int, deaths: int, changed: asyncio.Event
    ) -> None:
        pause = min(BACKOFF_CAP_SECONDS, BACKOFF_SECONDS * 2 ** min(deaths - 1, 16))
        # A mistake in the source is mended by a change of it, not by time.
        mended_by_change = self._watched is not None and worker.returncode == 1
        until = "a file changes" if mended_by_change else f"{pause:g} s"
        _log("worker_died", number, pid=worker.pid, code=worker.returncode, restart_after=until)
        waiting = asyncio.create_task(asyncio.sleep(pause))
        await self._first(None if mended_by_change else waiting, changed)
        waiting.cancel()

    async def _first(self, task: "asyncio.Task[object] | None", changed: asyncio.Event) -> None:
        """Wait for the task, a change of a file, or the order to stop."""
        others = {
            asyncio.create_task(changed.wait()),
            asyncio.create_task(self._stopping.until.wait()),
        }
        waiting = others if task is None else {task, *others}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in others:
            each.cancel()

    async def _end(self, worker: Process, number: int) -> bool:
        """Let a worker drain; hurry it, then kill it, if it takes too long."""
        _signal(worker, signal.SIGTERM)
        ended = asyncio.create_task(worker.wait())
        hurry = asyncio.create_task(self._stopping.at_once.wait())
        limit = self._command.grace_seconds + KILL_AFTER_SECONDS
        await asyncio.wait({ended, hurry}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if hurry.done() and not ended.done():
            _signal(worker, signal.SIGTERM)
            await asyncio.wait({ended}, timeout=KILL_AFTER_SECONDS)
        hurry.cancel()
        if not ended.done():
            _signal(worker, signal.SIGKILL)
        code = await ended
        _log("worker_ended", number, pid=worker.pid, code=code)
        # SIGTERM itself ends a worker that has not yet come to taking it over.
        return code in (0, -signal.SIGTERM)

    async def _watch(self) -> None:
        assert self._watched is not None  # noqa: S101 - only then it is started
        seen = await asyncio.to_thread(snapshot, self._watched)
        while True:
            seen, files = await next_change(self._watched, seen)
            logger.info("source_changed files=%s", ", ".join(files[:5]))
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()


def _signal(worker: Process, number: int) -> None:
    with suppress(ProcessLookupError):
        worker.send_signal(number)


def _log(event: str, number: int, **fields: object) -> None:
    told = {"worker": number, **fields}
    line = " ".join([event, *(f"{key}={value}" for key, value in told.items())])
    level = logging.WARNING if event == "worker_died" else logging.INFO
    logger.log(level, "%s", line, extra={"event": event, "fields": told})
