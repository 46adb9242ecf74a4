"""Which source files are watched."""

from pathlib import Path

from amqp_agents.cli.watching import changed_files, snapshot


def test_only_sources_of_the_users_own_are_watched(tmp_path: Path) -> None:
    for name in ("a.py", "pkg/b.py", ".hidden/c.py", "__pycache__/d.py", "venv/e.py", "f.txt"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    found = {str(Path(name).relative_to(tmp_path)) for name in snapshot(tmp_path)}
    assert found == {"a.py", "pkg/b.py"}


def test_a_folder_that_is_gone_is_empty(tmp_path: Path) -> None:
    assert snapshot(tmp_path / "gone") == {}


def test_a_link_in_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(snapshot(tmp_path)) == 1


def test_changed_added_and_removed_files_are_told() -> None:
    assert changed_files({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "d": 1}) == ("b", "c", "d")
    assert changed_files({"a": 1}, {"a": 1}) == ()
