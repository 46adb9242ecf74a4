"""The folders of running groups, and the end of those whose owner died without ending them.

Shape: CACHE/run/GROUP/{owner.json, detached, processes/NAME.json, …}
"""

import shutil
from pathlib import Path

from tests.nodes.place import cache_folder
from tests.nodes.processes import Process


def run_folder() -> Path:
    """Where the folders of running groups are."""
    folder = cache_folder() / "run"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def end_group(folder: Path, *, grace_seconds: float = 0) -> None:
    """End every process on record in `folder`, epmd last, and delete the folder."""
    for name, process in sorted(_processes(folder).items(), key=lambda item: item[0] == "epmd"):
        process.end(grace_seconds=0 if name == "epmd" else grace_seconds)
    shutil.rmtree(folder, ignore_errors=True)


def clear_stale(run: Path) -> list[Path]:
    """End and delete the groups under `run` that nobody owns any more; returns their folders.

    A detached group is stale when none of its processes lives. A folder in the making begins with a
    dot.
    """
    stale = [folder for folder in run.glob("[!.]*") if folder.is_dir() and _is_stale(folder)]
    for folder in stale:
        end_group(folder)
    return stale


def _is_stale(folder: Path) -> bool:
    if (folder / "detached").exists():
        return not any(process.alive for process in _processes(folder).values())
    owner = Process.load(folder / "owner.json")
    return owner is None or not owner.alive


def _processes(folder: Path) -> dict[str, Process]:
    loaded = {file.stem: Process.load(file) for file in (folder / "processes").glob("*.json")}
    return {name: process for name, process in loaded.items() if process is not None}
