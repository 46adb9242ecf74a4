"""Waits for its parent's end, even by SIGKILL, then ends the nodes that the parent left behind.

Shape: python -m tests.nodes.guard RUN_FOLDER PARENT_PID, a pipe from the parent as standard input
"""

import signal
import sys
from pathlib import Path

from tests.nodes.processes import Process
from tests.nodes.stale import clear_stale

_PARENT_LIMIT_SECONDS = 30


def main() -> None:
    """Block until the parent's end of the pipe closes, then clear up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = Process.of(int(sys.argv[2]))
    sys.stdin.buffer.read()
    parent.wait_gone(_PARENT_LIMIT_SECONDS)
    clear_stale(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
