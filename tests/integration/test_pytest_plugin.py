"""The plugin as its users have it: in pytest processes of their own."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

INSTALLED = any(found.name == "amqp_agents" for found in entry_points(group="pytest11"))
PLUGIN = ("-p", "amqp_agents" if INSTALLED else "pytest_amqp_agents")
ROOT = Path(__file__).parents[2]
WITHOUT_ASYNCIO = ("-p", "no:asyncio", "-p", "no:anyio")
AUTO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
STRICT = ("-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function")
SESSION = ("-o", "asyncio_default_test_loop_scope=session")

AGENTS = """
    import asyncio
    from contextlib import asynccontextmanager

    from pydantic import BaseModel
    from amqp_agents import AgentApp, agent

    class Draft(BaseModel):
        text: str

    class Review(BaseModel):
        risk_level: str

    @agent("quality_agent")
    async def review(draft: Draft) -> Review:
        return Review(risk_level="high" if "refund" in draft.text else "low")

    @asynccontextmanager
    async def only_its_own_task_may_leave_it():
        async with asyncio.TaskGroup():
            yield

    app = AgentApp([review], lifespan=only_its_own_task_may_leave_it)
"""
CONFTEST = """
    import pytest
    import my_agents

    @pytest.fixture
    def agent_app():
        return my_agents.app
"""
TESTS = """
    import asyncio
    import pytest
    from my_agents import Draft, review

    async def risk(client, text):
        return (await client.request(review, Draft(text=text))).risk_level

    async def test_function(client):
        assert await risk(client, "refund") == "high"

    class TestInAClass:
        @pytest.mark.parametrize("text", ["hello", "bye"])
        async def test_method(self, tmp_path, text, agent_client):
            assert tmp_path.is_dir()
            assert await risk(agent_client, text) == "low"

    async def test_failure(client):
        assert await risk(client, "refund") == "low"

    def test_without_a_client():
        pass
"""
WITH_AN_ASYNC_FIXTURE = """
    import asyncio
    import pytest
    import pytest_asyncio
    from my_agents import Draft, review

    @pytest_asyncio.fixture(loop_scope={scope!r})
    async def asked(client):
        return asyncio.get_running_loop(), await client.request(review, Draft(text="refund"))

    @pytest.mark.asyncio
    async def test_marked(client, asked):
        assert asked[0] is asyncio.get_running_loop()
        assert (await client.request(review, Draft(text="refund"))) == asked[1]
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's project with an app of one agent, and the plugin at hand."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("AMQP_AGENTS_TEST_URL", raising=False)
    pytester.makepyfile(my_agents=AGENTS)
    pytester.makeconftest(CONFTEST)
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess(*options, *PLUGIN, "-W", "error", timeout=120)


@pytest.mark.parametrize(
    "options",
    [WITHOUT_ASYNCIO, AUTO, STRICT],
    ids=["no plugin for coroutines", "pytest-asyncio auto", "pytest-asyncio strict"],
)
def test_coroutine_tests_with_a_client_run(project, options):
    project.makepyfile(test_agents=TESTS)
    result = run(project, *options)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["E * assert 'high' == 'low'*"])


@pytest.mark.parametrize(
    ("options", "scope"),
    [(AUTO, "function"), (STRICT, "function"), ((*AUTO, *SESSION), "session")],
    ids=["auto", "strict", "auto, one loop for the session"],
)
def test_the_client_lives_in_the_loop_of_pytest_asyncio(project, options, scope):
    project.makepyfile(test_agents=WITH_AN_ASYNC_FIXTURE.format(scope=scope))
    run(project, *options).assert_outcomes(passed=1)


def test_the_client_lives_in_the_loop_of_anyio(project):
    project.makepyfile(
        test_agents="""
            import pytest
            from my_agents import Draft, review

            @pytest.fixture
            def anyio_backend():
                return "asyncio"

            @pytest.mark.anyio
            async def test_marked(client):
                assert (await client.request(review, Draft(text="refund"))).risk_level == "high"
        """
    )
    run(project, "-p", "no:asyncio").assert_outcomes(passed=1)


def test_a_test_run_without_a_client_imports_nothing_of_the_package(project):
    project.makeconftest("")
    project.makepyfile(
        test_other="""
            import sys

            def test_it_is_not_imported():
                assert "pytest_amqp_agents" in sys.modules
                assert not {"amqp_agents", "aio_pika", "pydantic"} & set(sys.modules)
        """
    )
    run(project, *WITHOUT_ASYNCIO).assert_outcomes(passed=1)


def test_without_an_app_the_fixture_says_what_to_define(project):
    project.makeconftest("")
    project.makepyfile(test_agents="async def test_something(client):\n    pass\n")
    result = run(project, *WITHOUT_ASYNCIO)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*define a fixture 'agent_app' that returns it*"])


def test_the_client_of_another_plugin_stays_its_own_where_there_is_no_app(project):
    project.makeconftest("")
    project.makepyfile(
        other_plugin="""
            import pytest

            @pytest.fixture
            def client():
                return "a client for web pages"
        """,
        test_pages="""
            def test_page(client):
                assert client == "a client for web pages"
        """,
    )
    run(project, "-p", "other_plugin", *WITHOUT_ASYNCIO).assert_outcomes(passed=1)


def test_an_app_that_cannot_start_fails_the_test_with_its_reason(project):
    project.makepyfile(
        test_agents="""
            import pytest
            from contextlib import asynccontextmanager
            from amqp_agents import AgentApp
            from my_agents import review

            @asynccontextmanager
            async def broken():
                raise OSError("the model is not there")
                yield

            @pytest.fixture
            def agent_app():
                return AgentApp([review], lifespan=broken)

            async def test_something(client):
                pass
        """
    )
    result = run(project, *WITHOUT_ASYNCIO)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E * OSError: the model is not there"])


ON_A_BROKER = """
    from amqp_agents import RabbitMQBroker
    from my_agents import Draft, review

    async def test_on_a_broker(client):
        assert isinstance(client.broker, RabbitMQBroker)
        assert (await client.request(review, Draft(text="refund"))).risk_level == "high"
"""


@pytest.mark.rabbitmq
def test_the_same_test_runs_on_rabbitmq_by_the_option(project, vhost_url):
    project.makepyfile(test_agents=ON_A_BROKER)
    result = run(project, *WITHOUT_ASYNCIO, "--amqp-agents-url", vhost_url)
    result.assert_outcomes(passed=1)


@pytest.mark.rabbitmq
def test_the_same_test_runs_on_rabbitmq_by_the_variable(project, vhost_url, monkeypatch):
    monkeypatch.setenv("AMQP_AGENTS_TEST_URL", vhost_url)
    project.makepyfile(test_agents=ON_A_BROKER)
    run(project, *WITHOUT_ASYNCIO).assert_outcomes(passed=1)
