"""Watching source files by their times of change; no thread, no library, any file system."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

POLL_SECONDS = 0.5
SKIPPED = frozenset({"__pycache__", "node_modules"})

Snapshot = Mapping[str, int]


def snapshot(root: Path) -> Snapshot:
    """Return the time of change of every .py file below `root`.

    Hidden folders and virtual environments are left out.
    """
    return dict(_files(str(root)))


def changed_files(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """Return which files were changed, added or removed.

    >>> changed_files({"a.py": 1, "b.py": 1}, {"a.py": 2, "c.py": 1})
    ('a.py', 'b.py', 'c.py')
    """
    names = sorted(before.keys() | after.keys())
    return tuple(name for name in names if before.get(name) != after.get(name))


async def next_change(root: Path, before: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """Return the new snapshot and what changed, once something did."""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        after = await asyncio.to_thread(snapshot, root)
        if changed := changed_files(before, after):
            return after, changed


def _files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # removed meanwhile, or not ours to read
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in SKIPPED:
                yield from _files(entry.path)
        elif entry.name.endswith(".py"):
            yield from _time_of(entry)


def _time_of(entry: "os.DirEntry[str]") -> Iterator[tuple[str, int]]:
    try:
        yield entry.path, entry.stat().st_mtime_ns
    except OSError:
        return  # removed between the listing and the look
