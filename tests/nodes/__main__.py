"""RabbitMQ nodes from the command line.

python -m tests.nodes install VERSION           3.10, 4.0, 4.3 or system
python -m tests.nodes start VERSION [--detach]  prints NAME=VALUE lines, runs until a signal
python -m tests.nodes stop FOLDER               ends a detached node
python -m tests.nodes with VERSION -- COMMAND   runs COMMAND with a node in its environment
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.nodes.node import PLUGINS, Node, NodeFailed
from tests.nodes.obtain import VERSIONS, server
from tests.nodes.place import NodeUnavailable
from tests.nodes.stale import end_group

_STOP_LIMIT_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code, 1 when no node can be had."""
    chosen = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(chosen.run(chosen))
    except (NodeUnavailable, NodeFailed) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def environment_of(node: Node) -> dict[str, str]:
    """The variables by which programs and tests find `node`."""
    return {
        "AMQP_AGENTS_URL": node.url,
        "AMQP_AGENTS_MANAGEMENT_URL": node.management_url,
        "AMQP_AGENTS_TEST_URL": node.url,
        "AMQP_AGENTS_TEST_MANAGEMENT_URL": node.management_url,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.nodes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    install = commands.add_parser("install", help="install a version, start nothing")
    install.set_defaults(run=_install)
    start = commands.add_parser("start", help="start a node")
    start.add_argument("--detach", action="store_true", help="return and leave it running")
    start.set_defaults(run=_start)
    within = commands.add_parser("with", help="run a command with a node")
    within.set_defaults(run=_with)
    for one in (install, start, within):
        one.add_argument("version", choices=VERSIONS)
    for one in (start, within):
        one.add_argument(
            "--plugin", action="append", default=[], help="one more plugin; may be repeated"
        )
    within.add_argument("command", nargs="+", help="after --")
    stop = commands.add_parser("stop", help="end a detached node")
    stop.add_argument("folder", type=Path)
    stop.set_defaults(run=_stop)
    return parser


def _install(chosen: argparse.Namespace) -> int:
    found = server(chosen.version)
    print(f"RabbitMQ {found.version} in {found.root}")
    return 0


def _node(chosen: argparse.Namespace) -> Node:
    return Node(chosen.version, plugins=(*PLUGINS, *chosen.plugin))


def _start(chosen: argparse.Namespace) -> int:
    with _node(chosen) as node:
        for name, value in environment_of(node).items():
            print(f"{name}={value}")
        print(f"AMQP_AGENTS_TEST_FOLDER={node.group.folder}", flush=True)
        if chosen.detach:
            node.detach()
        else:
            _wait_for_signal()
    return 0


def _wait_for_signal() -> None:
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return


def _stop(chosen: argparse.Namespace) -> int:
    if not (chosen.folder / "owner.json").exists():
        print(f"{chosen.folder} is not the folder of a node", file=sys.stderr)
        return 1
    end_group(chosen.folder, grace_seconds=_STOP_LIMIT_SECONDS)
    return 0


def _with(chosen: argparse.Namespace) -> int:
    with _node(chosen) as node:
        return _run(chosen.command, {**os.environ, **environment_of(node)})


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run `command` to its end; SIGTERM is passed on, SIGINT it has from the terminal anyway."""
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        print(f"{command[0]} could not be run: {error}", file=sys.stderr)
        return 127
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
