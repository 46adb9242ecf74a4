"""Wrong inputs in real processes: an exit code of 1 and one sentence that names the mend."""

import pytest

from tests.integration.cli.program import Ended, Program

MODULES = {
    "raises.py": "def load():\n    raise ValueError('no model key')\n\n\nload()\n",
    "imports.py": "import not_there_at_all\n",
    "syntax.py": "def f(:\n",
    "exits.py": "import sys\n\nsys.exit(3)\n",
    "secret.py": "raise OSError('amqp://me:pa55word@rabbit/ is down')\n",
    "bad_lifespan.py": (
        "from contextlib import asynccontextmanager\n"
        "from my_agents import review\n"
        "from amqp_agents import AgentApp\n"
        "@asynccontextmanager\n"
        "async def lifespan():\n"
        "    raise KeyError('MODEL_KEY')\n"
        "    yield\n"
        "app = AgentApp([review], lifespan=lifespan)\n"
    ),
}

OFFLINE = [
    (["rn"], "No such command 'rn'. Did you mean 'run'?"),
    (["run", "--declar", "my_agents:app"], "Did you mean --declare?"),
    (["run", "my_agnts:app"], "did you mean 'my_agents'?"),
    (["run", "raises"], "raises.py:2: ValueError: no model key"),
    (["run", "imports"], "imports.py:1: ModuleNotFoundError: No module named 'not_there_at_all'"),
    (["run", "syntax"], "syntax.py:1: SyntaxError"),
    (["run", "exits"], "exits.py:3: it ends the program"),
    (["run", "secret"], "amqp://me:***@rabbit/ is down"),
    (["dlq", "list", "--url", "http://x"], "it must begin with amqp://"),
    (["call", "a", "{}", "--url", "amqp://u:pa55word/x@h/"], "percent-encode"),
    (["call", "quality_agent", "{}"], "cannot reach RabbitMQ at 127.0.0.1:9"),
    (["publish", "{}", "--to", "a"], "cannot reach RabbitMQ at 127.0.0.1:9"),
    (["topology", "check", "my_agents:app"], "is RabbitMQ running? set AMQP_AGENTS_URL"),
    (["dlq", "list", "quality_agent"], "cannot reach RabbitMQ at 127.0.0.1:9"),
]


def one_sentence(ended: Ended, wanted: str) -> None:
    assert ended.code == 1, ended.out
    assert wanted in ended.err
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    assert "pa55word" not in ended.out + ended.err


@pytest.mark.parametrize(("arguments", "wanted"), OFFLINE, ids=[" ".join(a) for a, _ in OFFLINE])
def test_a_wrong_input_is_told_in_a_sentence(
    offline: Program, arguments: list[str], wanted: str
) -> None:
    for name, text in MODULES.items():
        (offline.folder / name).write_text(text)
    ended = offline(*arguments, env={"AMQP_AGENTS_CONNECT_TIMEOUT_SECONDS": "0.5"})
    one_sentence(ended, wanted)


def test_a_wrong_setting_is_named_without_its_value(offline: Program) -> None:
    ended = offline("dlq", "list", env={"AMQP_AGENTS_HEARTBEAT_SECONDS": "pa55word"})
    one_sentence(ended, "AMQP_AGENTS_HEARTBEAT_SECONDS")


def test_a_reader_that_leaves_is_no_traceback(offline: Program) -> None:
    running = offline.start("topology", "graph", "my_agents:app", read_out=False)
    running.ended()
    assert running.said == ""


@pytest.mark.rabbitmq
def test_a_wrong_password_is_told_without_showing_it(program: Program) -> None:
    url = program.environment["AMQP_AGENTS_URL"].replace("guest:guest", "guest:pa55word")
    short = {"AMQP_AGENTS_URL": url, "AMQP_AGENTS_CONNECT_TIMEOUT_SECONDS": "1"}
    one_sentence(program("call", "quality_agent", "{}", env=short), "check user and password")
    loud = program("run", "my_agents:app", "--log-level=debug", env=short)
    assert loud.code == 1
    assert loud.err.splitlines()[-1].startswith("error: RabbitMQ at")
    assert "pa55word" not in loud.out + loud.err
    ended = program("doctor", env=short)
    assert ended.code == 1
    assert "refused the login of user 'guest'" in ended.out
    assert "pa55word" not in ended.out + ended.err


@pytest.mark.rabbitmq
def test_a_missing_vhost_is_told_with_how_to_make_it(program: Program) -> None:
    url = program.environment["AMQP_AGENTS_URL"]
    gone = {
        "AMQP_AGENTS_URL": f"{url.rpartition('/')[0]}/no-such-vhost",
        "AMQP_AGENTS_CONNECT_TIMEOUT_SECONDS": "1",
    }
    one_sentence(program("dlq", "list", "quality_agent", env=gone), "'no-such-vhost'")


@pytest.mark.rabbitmq
def test_a_missing_topology_is_told_with_how_to_make_it(program: Program) -> None:
    one_sentence(program("call", "quality_agent", "{}"), "run 'amqp-agents topology apply'")
    one_sentence(program("dlq", "list", "quality_agent"), "queue agent.quality_agent.dlq")
    one_sentence(program("dlq", "replay", "quality_agent", "--all"), "agent.quality_agent.dlq")


@pytest.mark.rabbitmq
def test_what_the_apps_own_lifespan_raises_is_told_with_its_place(program: Program) -> None:
    (program.folder / "bad_lifespan.py").write_text(MODULES["bad_lifespan.py"])
    ended = program("run", "--declare", "bad_lifespan")
    one_sentence(ended, "KeyError: 'MODEL_KEY' (bad_lifespan.py:6)")


@pytest.mark.rabbitmq
def test_error_answers_and_silence_are_told(program: Program) -> None:
    running = program.start("run", "--declare", "my_agents:app", "--grace=0")
    running.until("ready")
    wrong = program("call", "quality_agent", '{"text": 3}')
    one_sentence(wrong, "agent 'quality_agent' answered INVALID_PAYLOAD")
    unknown = program("call", "nobody", "{}")
    one_sentence(unknown, "agent 'nobody' has no queue on this broker")
    slow = program("call", "quality_agent", '{"seconds": 60}', "--timeout", "0.5")
    one_sentence(slow, "no answer from 'quality_agent' within 0.5 s")
    assert "--timeout" in slow.err
