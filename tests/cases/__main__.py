"""Run the field cases on several RabbitMQ versions, print the table, write docs/field-cases.md.

python -m tests.cases [VERSION ...]     3.10 4.0 4.3 unless named; exit code 1 if a case fails
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.nodes.__main__ import environment_of
from tests.nodes.node import Node, NodeFailed
from tests.nodes.place import NodeUnavailable

VERSIONS = ("3.10", "4.0", "4.3")
HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "field-cases.md"
ABSENT = "not run"
WORST = ("fails", "needs a part that is missing", "holds")

HEAD = """# Field cases

Reports of people who run messaging over RabbitMQ, each turned into a check and named after what
goes wrong. After every odd message four things must hold: a normal message to the same queue is
handled within 5 s; the odd one is in exactly one place; it is delivered no more often than its
attempts allow, without a loop or a lost connection; and one log record and one count say queue,
message and reason. `make cases` repeats this table; a case is one file of `tests/cases`.

"""


def main(arguments: Sequence[str]) -> int:
    """Run every case on each version; return the exit code."""
    versions = tuple(arguments) or VERSIONS
    outcomes = {version: outcomes_on(version) for version in versions}
    table = table_of(outcomes)
    print(table)
    PAGE.write_text(HEAD + table)
    failed = any("fails" in found for each in outcomes.values() for found in each.values())
    return 1 if failed else 0


def outcomes_on(version: str) -> dict[str, str]:
    """Return how each case ends on a node of this version, by the name of its file."""
    try:
        with Node(version) as node, tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "junit.xml"
            env = {**os.environ, **environment_of(node), "AMQP_AGENTS_TEST_VERSION": version}
            command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", str(HERE)]
            subprocess.run(command, env=env, check=False)
            return read(report)
    except (NodeUnavailable, NodeFailed) as error:
        print(error, file=sys.stderr)
        return {}


def read(report: Path) -> dict[str, str]:
    """Return the worst that happened to any test of each file, and how many there were."""
    found: dict[str, list[str]] = {}
    for test in ElementTree.parse(report).iter("testcase"):
        name = re.search(r"test_p\d\d\w*", test.get("classname", ""))
        if name is not None:
            found.setdefault(name[0], []).append(ended(test))
    return {
        name: f"{next(each for each in WORST if each in ends)} ({len(ends)})"
        for name, ends in found.items()
    }


def ended(test: ElementTree.Element) -> str:
    """Return how one test ended: a skipped one proves nothing, so it counts as a failure."""
    skipped = test.find("skipped")
    if skipped is not None and skipped.get("type") == "pytest.xfail":
        return WORST[1]
    bad = skipped is not None or test.find("failure") is not None or test.find("error") is not None
    return WORST[0] if bad else WORST[2]


def table_of(outcomes: dict[str, dict[str, str]]) -> str:
    """Return the outcome of each case on each version as a table; tests are counted."""
    lines = [
        f"| case | what goes wrong | {' | '.join(outcomes)} |",
        f"|---|---|{'---|' * len(outcomes)}",
    ]
    for path in sorted(HERE.glob("test_p*.py")):
        number = path.stem.split("_")[1].upper()
        ends = " | ".join(found.get(path.stem, ABSENT) for found in outcomes.values())
        lines.append(f"| {number} | {title(path)} | {ends} |")
    return "\n".join(lines) + "\n"


def title(path: Path) -> str:
    """Return the first line of what a case says of itself."""
    first = path.read_text().split('"""')[1].splitlines()[0]
    return first.replace("|", "\\|").removesuffix(".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
