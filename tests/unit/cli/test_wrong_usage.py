"""Whatever is typed wrongly: exit code 1, nothing on stdout, one sentence with the mend."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Invoke

FILES = {
    "my_agents.py": (
        "from pydantic import BaseModel\n"
        "from amqp_agents import AgentApp, agent\n"
        "class P(BaseModel): ...\n"
        "@agent('a')\n"
        "async def one(p: P) -> P: return p\n"
        "app = AgentApp([one])\n"
    ),
    "no_app.py": "application = 3\n",
    "wrong_type.py": "app = 3\n",
    "raises.py": "def load():\n    raise ValueError('no model key')\n\n\nload()\n",
    "imports.py": "import not_there_at_all\n",
    "syntax.py": "def f(:\n",
    "exits.py": "import sys\n\nsys.exit(3)\n",
    "doubled.py": (
        "from pydantic import BaseModel\n"
        "from amqp_agents import AgentApp, agent\n"
        "class P(BaseModel): ...\n"
        "@agent('a')\n"
        "async def one(p: P) -> P: return p\n"
        "@agent('a')\n"
        "async def two(p: P) -> P: return p\n"
        "app = AgentApp([one, two])\n"
    ),
    "bad.yaml": "agents:\n  - name: a b\n  - nmae: x\n",
}

TABLE = [
    (["rn"], "No such command 'rn'. Did you mean 'run'?"),
    (["topology", "aply"], "Did you mean 'apply'?"),
    (["run", "--declar", "my_agents:app"], "Did you mean --declare? see 'amqp-agents run --help'"),
    (["run"], "Missing argument"),
    (["run", "my_agents:app", "--workers", "0"], "--workers"),
    (["run", "my_agents:app", "--log-level", "loud"], "--log-level"),
    (["run", "my_agents:app", "--grace", "-1"], "--grace"),
    (["topology", "graph", "my_agnts:app"], "did you mean 'my_agents'?"),
    (["topology", "graph", "my_agents.py:app"], "name the module instead: 'my_agents:app'"),
    (["topology", "graph", "./sub/my_agents.py"], "name the module instead: 'sub.my_agents:app'"),
    (["topology", "graph", "my agents"], "write it as module:app"),
    (["topology", "graph", ""], "write it as module:app"),
    (["topology", "graph", "my_agents:ap"], "did you mean my_agents:app?"),
    (["topology", "graph", "no_app"], "module 'no_app' has no 'app'; write app = AgentApp"),
    (["topology", "graph", "wrong_type"], "wrong_type:app is a int, no AgentApp"),
    (["topology", "graph", "raises"], "raises.py:2: ValueError: no model key"),
    (["topology", "graph", "imports"], "imports.py:1: ModuleNotFoundError: No module named"),
    (["topology", "graph", "syntax"], "syntax.py:1: SyntaxError"),
    (["topology", "graph", "exits"], "exits.py:3: it ends the program"),
    (["topology", "graph", "doubled"], "doubled.py:8: agent 'a' is declared twice"),
    (["topology", "graph", "bad.yaml"], "bad.yaml:2:11: agent id 'a b'"),
    (["topology", "graph", "bad.yaml"], "did you mean 'name'?"),
    (["topology", "graph", "none.yaml"], "none.yaml: cannot be read: No such file"),
    (["topology", "graph"], "there is no topology/agents.yaml"),
    (["topology", "graph", "my_agents:app", "--format", "png"], "--format"),
    (["call", "quality_agent"], "Missing argument 'payload'"),
    (["call", "quality_agent", "{"], "the payload cannot be read"),
    (["call", "quality_agent", "[1]"], "the payload is a list; agents take an object"),
    (["call", "quality_agent", "null"], "the payload is null"),
    (["call", "quality_agent", '{"x": NaN}'], "payload.x is nan, which JSON cannot carry"),
    (["call", "quality_agent", "@nothing.json"], "'nothing.json' cannot be read"),
    (["call", "quality_agent", "@."], "'.' cannot be read"),
    (["call", "quality_agent", "{}", "--timeout", "0"], "--timeout"),
    (["call", "quality_agent", "{}", "--timeout", "inf"], "--timeout"),
    (["call", "quality_agent", "{}", "--timeout", "nan"], "--timeout"),
    (["publish", "{}"], "name one"),
    (["publish", "{}", "--to", "a", "--event", "b"], "not --to and --event together"),
    (["publish", "{}", "--to", "a b"], "agent id 'a b'"),
    (["publish", "{}", "--event", "ticket.*"], "'ticket.*' is a pattern"),
    (["publish", "{}", "--event", "a b"], "intent 'a b'"),
    (["publish", "{}", "--event", ""], "intent ''"),
    (["publish", "{}", "--event", "a", "--intent", "b"], "--intent belongs to --to"),
    (["publish", "{}", "--to", "a", "--priority", "11"], "--priority"),
    (["publish", "{}", "--to", "a", "--ttl", "0"], "--ttl"),
    (["dlq", "replay", "quality_agent"], "either a MESSAGE_ID or --all"),
    (["dlq", "replay", "quality_agent", "x", "--all"], "either a MESSAGE_ID or --all"),
    (["dlq", "replay", "quality_agent", "--all", "--rate", "0"], "--rate"),
    (["dlq", "list", "a.b"], "agent id 'a.b'"),
    (["dlq", "list", "--limit", "0"], "--limit"),
    (["dlq", "list", "a", "--url", "http://x"], "it must begin with amqp://"),
    (["dlq", "list", "a", "--url", ""], "it is empty"),
    (["call", "a", "{}", "--url", "amqp://u:s3cr/et@h/"], "percent-encode"),
]


@pytest.mark.parametrize(("arguments", "wanted"), TABLE, ids=[" ".join(a) for a, _ in TABLE])
def test_a_wrong_input_is_one_sentence(
    invoke: Invoke, folder: Path, arguments: list[str], wanted: str
) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    ended = invoke(*arguments)
    assert ended.exit_code == 1
    assert wanted in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert ended.stdout == ""
    assert "s3cr" not in ended.stderr


def test_with_json_an_error_is_a_document_too(invoke: Invoke) -> None:
    ended = invoke("call", "quality_agent", "[]", "--json")
    assert ended.exit_code == 1
    error = json.loads(ended.stdout)["error"]
    assert (error["type"], error["code"]) == ("InvalidPayloadError", "INVALID_PAYLOAD")
    assert json.loads(invoke("call", "--json").stdout)["error"]["type"] == "UsageError"


def test_a_payload_that_is_no_text_is_told(invoke: Invoke) -> None:
    ended = invoke("call", "quality_agent", "-", stdin=b"\xff\xfe{")
    assert ended.exit_code == 1
    assert "the payload cannot be read" in ended.stderr
