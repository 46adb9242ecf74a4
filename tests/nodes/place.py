"""Where nodes and chroots live, and the error for having none."""

import os
import tempfile
from pathlib import Path


class NodeUnavailable(RuntimeError):  # noqa: N818 - reads as a state of the machine
    """No RabbitMQ of the wanted version can be had here; the sentence says what to install."""


def cache_folder() -> Path:
    """The folder of chroots and running nodes; AMQP_AGENTS_NODES_CACHE moves it.

    Raises: NodeUnavailable when it belongs to somebody else.
    """
    chosen = os.environ.get("AMQP_AGENTS_NODES_CACHE")
    usual = Path(tempfile.gettempdir()) / "amqp-agents-nodes"
    folder = Path(chosen or usual).resolve()
    if not chosen and not _own(folder):
        folder = folder.with_name(f"{folder.name}-{os.geteuid()}")
    if not _own(folder):
        raise NodeUnavailable(
            f"{folder} belongs to another user: set AMQP_AGENTS_NODES_CACHE to a folder of your own"
        )
    return folder


def _own(folder: Path) -> bool:
    """Whether the folder, made here if it is missing, is this user's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.stat().st_uid == os.geteuid()
