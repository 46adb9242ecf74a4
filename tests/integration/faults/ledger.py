"""A ledger in a process of its own: what was sent, what was done, told line by line over TCP.

It outlives the worker and the broker, so that it can say what each of them really did.
"""

import asyncio
import json
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Self

Noted = dict[str, dict[str, list[float]]]
"""When each thing was told: {"handled": {"17": [1796050000.25], …}, …}."""

ROOT = Path(__file__).parents[3]


class Ledger:
    """The ledger's process, and what it was told."""

    def __init__(self) -> None:
        self.port = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.faults.ledger"),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(await asyncio.wait_for(self._process.stdout.readline(), 10))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        await asyncio.wait_for(self._process.wait(), 5)

    async def tell(self, what: str, key: str) -> None:
        """Tell it one thing; returns once it has noted it."""
        await tell(self.port, what, key)

    async def release(self, key: str) -> None:
        """Let everybody go on who awaits `key`, now and later."""
        await tell(self.port, "release", key)

    async def noted(self) -> Noted:
        """When it was told each thing, in seconds since the epoch."""
        noted: Noted = json.loads(await tell(self.port, "report", ""))
        return noted

    async def counts(self) -> dict[str, Counter[str]]:
        """How often it was told each thing: {"handled": {"17": 1, …}, …}."""
        noted = await self.noted()
        return {
            what: Counter({key: len(times) for key, times in told.items()})
            for what, told in noted.items()
        }

    async def until(
        self, reached: Callable[[dict[str, Counter[str]]], bool], limit_seconds: float = 60
    ) -> dict[str, Counter[str]]:
        """Ask again and again until the counts are as wanted, and return them."""
        counts: dict[str, Counter[str]] = {}
        try:
            async with asyncio.timeout(limit_seconds):
                while not reached(counts := await self.counts()):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            told = {what: len(keys) for what, keys in counts.items()}
            raise AssertionError(f"not within {limit_seconds:g} s; noted so far: {told}") from None
        return counts


async def tell(port: int, what: str, key: str) -> str:
    """Tell the ledger at `port` one thing and return its answer.

    The answer to `await KEY` comes once somebody has told it to `release KEY`.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        writer.write(f"{what} {key}\n".encode())
        return (await reader.readline()).decode()
    finally:
        writer.close()


async def serve() -> None:
    """Listen on a free port, print it, and note what comes until ended."""
    noted: Noted = {}
    released: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        what, _, key = (await reader.readline()).decode().strip().partition(" ")
        if what == "report":
            writer.write(json.dumps(noted).encode() + b"\n")
        elif what == "await":
            await released[key].wait()
        elif what == "release":
            released[key].set()
        elif what:
            noted.setdefault(what, {}).setdefault(key, []).append(time.time())
        writer.write(b"done\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0, backlog=1024)
    listener: socket.socket = server.sockets[0]
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
