"""The pytest plugin of amqp_agents: a `client` to the app that your `agent_app` returns.

    @pytest.fixture
    def agent_app() -> AgentApp:
        return my_agents.app

    async def test_refunds_are_risky(client: Client) -> None:
        assert (await client.request(review, Draft(text="refund"))).risk_level == "high"

The app runs on the memory broker, for each test anew; with `--amqp-agents-url URL`, or else the
variable AMQP_AGENTS_TEST_URL, on that RabbitMQ (give it a vhost of its own: queues stay). The
variable that workers read, AMQP_AGENTS_URL, is never used here.

Coroutine tests that use the client need no other plugin. A test that pytest-asyncio (1.0 or
later) or anyio (on asyncio) runs keeps its runner, and gets the client in that loop.

pytest imports every installed plugin at each start. This one therefore stands beside the
package, and imports it only for the first test that asks for a client.
"""

import inspect
import os
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import pytest

_URL_VARIABLE = "AMQP_AGENTS_TEST_URL"
_LOOP_SCOPES = ("function", "class", "module", "package", "session")
_OWN_LOOP = pytest.StashKey[Any]()
_ASYNCIO = pytest.StashKey[ModuleType]()

_NO_APP = (
    "the fixture 'client' needs your app: define a fixture 'agent_app' that returns it, "
    "as in 'def agent_app(): return my_agents.app'"
)
_OLD_ASYNCIO = "the fixture 'client' works with pytest-asyncio 1.0 or later, or without it"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one option."""
    group = parser.getgroup("amqp_agents", "agents under test")
    group.addoption(
        "--amqp-agents-url",
        metavar="URL",
        help="run tests that use the client on this RabbitMQ vhost instead of in memory "
        f"(default: the variable {_URL_VARIABLE})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare clients for pytest-asyncio, where it is there."""
    plugins = {getattr(plugin, "__name__", "") for plugin in config.pluginmanager.get_plugins()}
    if "pytest_asyncio.plugin" not in plugins:
        return
    import pytest_asyncio

    config.stash[_ASYNCIO] = pytest_asyncio
    if _recent(pytest_asyncio):
        config.pluginmanager.register(_clients_for(pytest_asyncio))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the coroutine tests that have a client and no runner."""
    own = pyfuncitem.stash.get(_OWN_LOOP, None)
    if own is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    own.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def agent_app() -> Any:
    """Override this: return the AgentApp under test."""
    return None


@pytest.fixture
def client(request: pytest.FixtureRequest, agent_app: Any) -> Any:
    """A client of the app that `agent_app` returns; it is running, and its topology declared."""
    if agent_app is not None:
        return request.getfixturevalue("agent_client")
    try:
        return request.getfixturevalue("client")  # another plugin's, which this one hides
    except pytest.FixtureLookupError:
        pytest.fail(_NO_APP, pytrace=False)


@pytest.fixture
def agent_client(request: pytest.FixtureRequest, agent_app: Any) -> Iterator[Any]:
    """The same client under a name of its own, for projects whose `client` is something else."""
    if agent_app is None:
        pytest.fail(_NO_APP, pytrace=False)
    runner = _other_runner(request)
    if runner is not None:
        yield request.getfixturevalue(runner)
        return
    from amqp_agents.testing import own_loop

    with own_loop(agent_app, _url(request.config)) as own:
        request.node.stash[_OWN_LOOP] = own
        yield own.client
        del request.node.stash[_OWN_LOOP]


def _in_the_running_loop() -> Any:
    """Return the client as a new async function, since runners write on the functions they take."""

    async def client(request: pytest.FixtureRequest, agent_app: Any) -> AsyncIterator[Any]:
        from amqp_agents.testing import opened

        async with opened(agent_app, _url(request.config)) as client:
            yield client

    return client


_client_for_anyio = pytest.fixture(name="_agent_client_anyio")(_in_the_running_loop())


def _clients_for(pytest_asyncio: ModuleType) -> ModuleType:
    """Return the clients for tests of pytest-asyncio, one per loop that a test may run in."""
    clients = ModuleType("amqp_agents_clients_for_pytest_asyncio")
    for scope in _LOOP_SCOPES:
        fixture = pytest_asyncio.fixture(loop_scope=scope, name=f"_agent_client_{scope}")
        setattr(clients, f"client_{scope}", fixture(_in_the_running_loop()))
    return clients


def _other_runner(request: pytest.FixtureRequest) -> str | None:
    """Return the fixture that makes the client in the loop of whoever runs this test."""
    item, asyncio_plugin = request.node, request.config.stash.get(_ASYNCIO, None)
    if "anyio_backend" in request.fixturenames:
        return "_agent_client_anyio"
    if asyncio_plugin is None:
        return None
    if not _recent(asyncio_plugin):
        pytest.fail(_OLD_ASYNCIO, pytrace=False)
    if not asyncio_plugin.is_async_test(item):
        return None
    marker = item.get_closest_marker("asyncio")
    scope = None if marker is None else marker.kwargs.get("loop_scope")
    return f"_agent_client_{scope or request.config.getini('asyncio_default_test_loop_scope')}"


def _recent(pytest_asyncio: ModuleType) -> bool:
    return int(pytest_asyncio.__version__.split(".")[0]) >= 1


def _url(config: pytest.Config) -> str | None:
    url: str | None = config.getoption("--amqp-agents-url")
    return url or os.environ.get(_URL_VARIABLE) or None
