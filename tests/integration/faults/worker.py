"""A worker process of the fault tests, started and ended as an operator would."""

import asyncio
import os
import signal
import sys
from typing import Self

from tests.integration.faults.ledger import ROOT

TARGET = "tests.integration.faults.agents:app"
START_SECONDS = 30.0


class Worker:
    """`amqp-agents run TARGET`, in a process of its own; entering it waits until it consumes."""

    def __init__(self, url: str, *, management_url: str, ledger_port: int, grace: float) -> None:
        self._environment = {
            **os.environ,
            "AMQP_AGENTS_URL": url,
            "AMQP_AGENTS_MANAGEMENT_URL": management_url,
            "LEDGER_PORT": str(ledger_port),
            "PYTHONUNBUFFERED": "1",
        }
        self._arguments = ["run", "--declare", "--grace", str(grace), TARGET]
        self.output = ""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """Start it; returns once it consumes."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "amqp_agents", *self._arguments),
            cwd=ROOT,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        await asyncio.wait_for(self._ready.wait(), START_SECONDS)
        assert self._process.returncode is None, self.output

    async def kill(self) -> None:
        """End it as an out-of-memory killer would."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def terminate(self, limit_seconds: float) -> int:
        """Send SIGTERM and return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self._process.wait(), limit_seconds)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.output += line.decode()
            if line.startswith(b"ready"):
                self._ready.set()
        self._ready.set()  # it ended: whoever waits looks at the exit code
