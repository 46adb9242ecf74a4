"""What a dead owner left behind is ended and deleted; what is owned or detached is not touched."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes.processes import Process
from tests.nodes.stale import clear_stale, end_group

DEAD = Process(pid=os.getpid(), started="another time")


@pytest.fixture
def sleeper() -> Iterator[Process]:
    child = subprocess.Popen(["sleep", "60"])
    yield Process.of(child.pid)
    child.kill()
    child.wait()


def group(run: Path, name: str, *, owner: Process, processes: tuple[Process, ...] = ()) -> Path:
    folder = run / name
    (folder / "processes").mkdir(parents=True)
    owner.save(folder / "owner.json")
    for number, process in enumerate(processes):
        process.save(folder / "processes" / f"node{number}.json")
    return folder


def test_the_nodes_of_a_dead_owner_are_ended_and_their_folder_deleted(
    tmp_path: Path, sleeper: Process
) -> None:
    folder = group(tmp_path, "left", owner=DEAD, processes=(sleeper,))
    assert clear_stale(tmp_path) == [folder]
    assert not sleeper.alive
    assert not folder.exists()


def test_the_nodes_of_a_living_owner_are_left_alone(tmp_path: Path, sleeper: Process) -> None:
    owner = Process.of(os.getpid())
    folder = group(tmp_path, "owned", owner=owner, processes=(sleeper,))
    assert clear_stale(tmp_path) == []
    assert sleeper.alive
    assert folder.exists()


def test_a_detached_node_outlives_its_starter(tmp_path: Path, sleeper: Process) -> None:
    folder = group(tmp_path, "detached", owner=DEAD, processes=(sleeper,))
    (folder / "detached").touch()
    assert clear_stale(tmp_path) == []
    assert sleeper.alive


def test_a_detached_group_without_a_living_process_is_deleted(tmp_path: Path) -> None:
    folder = group(tmp_path, "detached", owner=DEAD, processes=(DEAD,))
    (folder / "detached").touch()
    assert clear_stale(tmp_path) == [folder]


def test_a_folder_still_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".making").mkdir()
    assert clear_stale(tmp_path) == []
    assert (tmp_path / ".making").exists()


def test_a_process_that_got_the_pid_of_a_dead_one_is_never_ended(
    tmp_path: Path, sleeper: Process
) -> None:
    earlier = Process(sleeper.pid, "an earlier time")
    folder = group(tmp_path, "left", owner=DEAD, processes=(earlier,))
    end_group(folder, grace_seconds=1)
    assert sleeper.alive


def test_an_unreadable_record_is_passed_over(tmp_path: Path) -> None:
    folder = group(tmp_path, "left", owner=DEAD)
    (folder / "processes" / "node.json").write_text("{")
    assert clear_stale(tmp_path) == [folder]
