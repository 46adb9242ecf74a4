"""The command line and worker processes of the cases, as an operator uses them."""

import asyncio
import os
import signal
import sys
from types import TracebackType
from typing import Self

from tests.cases.stage import Place

LIMIT_SECONDS = 30.0


def environment(place: Place, url: str | None = None, **more: str) -> dict[str, str]:
    """The environment in which a process finds the vhost."""
    return {
        **os.environ,
        "AMQP_AGENTS_URL": url or place.url,
        "AMQP_AGENTS_MANAGEMENT_URL": place.endpoint.management_url,
        "COLUMNS": "200",
        **more,
    }


async def command(place: Place, *arguments: str, url: str | None = None) -> tuple[int, str]:
    """Run `amqp-agents …` to its end; the exit code and everything it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "amqp_agents", *arguments),
        env=environment(place, url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


class Process:
    """A process whose lines can be waited for; killed at the end if it still runs."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        self._arguments, self._environment = arguments, environment
        self.lines: list[str] = []
        self._said = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *self._arguments),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    @property
    def output(self) -> str:
        """Everything it printed so far."""
        return "\n".join(self.lines)

    def count(self, line: str) -> int:
        """How often it printed a line."""
        return self.lines.count(line)

    async def says(self, line: str, times: int = 1, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Wait until it has printed a line that begins so, so often."""

        def said() -> bool:
            return sum(each.startswith(line) for each in self.lines) >= times

        try:
            async with asyncio.timeout(limit_seconds), self._said:
                await self._said.wait_for(said)
        except TimeoutError:
            raise AssertionError(f"it never said {line!r} {times} times:\n{self.output}") from None

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def ended(self, limit_seconds: float) -> int:
        """Wait for its end; the exit code."""
        try:
            async with asyncio.timeout(limit_seconds):
                code = await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"alive after {limit_seconds:g} s:\n{self.output}") from None
        await self._reading
        return code

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._said:
                self.lines.append(line.decode().rstrip("\n"))
                self._said.notify_all()
