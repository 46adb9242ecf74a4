"""`amqp-agents demo` needs nothing but itself."""

import json
from pathlib import Path

from tests.integration.cli.program import Program, environment


def test_the_demo_runs_in_memory_where_no_url_is_set(tmp_path: Path) -> None:
    settings = environment("", "")
    del settings["AMQP_AGENTS_URL"], settings["AMQP_AGENTS_MANAGEMENT_URL"]
    program = Program(tmp_path, settings)
    told = program("demo")
    assert told.code == 0, told.err
    assert told.out
    assert told.err == ""
    documented = program("demo", "--json")
    assert documented.code == 0
    assert json.loads(documented.out)
