"""A running app and its client for the pytest plugin, in whichever event loop runs the test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from amqp_agents.app import AgentApp
from amqp_agents.client import Client


class OwnLoop:
    """The event loop of one test that nobody else runs, with the client opened in it."""

    def __init__(self, client: Client, runner: asyncio.Runner) -> None:
        self.client, self._runner = client, runner

    def run(self, test: Coroutine[Any, Any, Any]) -> None:
        """Run the test to its end, where the client lives."""
        self._runner.run(test)


@asynccontextmanager
async def opened(app: AgentApp, url: str | None) -> AsyncIterator[Client]:
    """Run the app, and yield a client to it, from fixtures.

    A fixture is set up and torn down in two tasks; the app's lifespan may hold what must be
    left in the task that entered it, so it gets one task for both.
    """
    ready: list[Client] = []
    started, finished = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with app.test(url) as client:
            ready.append(client)
            started.set()
            await finished.wait()

    holding = asyncio.create_task(hold(), name="agent-app-under-test")
    holding.add_done_callback(lambda _: started.set())
    await started.wait()
    if not ready:
        holding.result()  # raises what kept the app from starting
    try:
        yield ready[0]
    finally:
        finished.set()
        await holding


@contextmanager
def own_loop(app: AgentApp, url: str | None) -> Iterator[OwnLoop]:
    """Yield a loop with the app running in it; the loop others may have set stays theirs."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        app_and_client = opened(app, url)
        client = runner.run(app_and_client.__aenter__())
        try:
            yield OwnLoop(client, runner)
        finally:
            runner.run(app_and_client.__aexit__(None, None, None))
