"""What is said when a version cannot be had; installing leaves the machine's policy alone."""

from pathlib import Path

import pytest

from tests.nodes import obtain
from tests.nodes.install import freshness_rules, no_service_starts
from tests.nodes.place import NodeUnavailable, cache_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "usr/sbin").mkdir(parents=True)
    return tmp_path


def unpack(root: Path, version: str) -> None:
    programs = root / f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}/sbin"
    programs.mkdir(parents=True)
    (programs / "rabbitmq-server").touch()
    (root / "usr/lib/rabbitmq/bin").mkdir()
    (root / "usr/lib/rabbitmq/bin/rabbitmq-server").symlink_to(
        f"../lib/rabbitmq_server-{version}/sbin/rabbitmq-server"
    )


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NodeUnavailable, match=r"use one of 3\.10, 4\.0, 4\.3, system"):
        obtain.server("2.0")


def test_a_chroot_is_refused_to_anyone_but_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(obtain, "SUITES", {"4.0": "trixie"})
    monkeypatch.setattr("platform.freedesktop_os_release", dict)
    with pytest.raises(NodeUnavailable, match="only root can enter: run as root"):
        obtain.server("4.0")


def test_without_root_a_missing_package_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(obtain, "find", lambda root: None)
    with pytest.raises(NodeUnavailable, match="run `sudo apt-get install rabbitmq-server`"):
        obtain.server("system")


def test_on_another_system_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "fedora"})
    monkeypatch.setattr(obtain, "find", lambda root: None)
    with pytest.raises(NodeUnavailable, match="install the package rabbitmq-server"):
        obtain.server("system")


def test_a_release_that_moved_on_is_refused_with_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = obtain.Server(Path("/chroot"), "5.0.1", Path("/usr/lib/rabbitmq/bin"))
    monkeypatch.setattr(obtain, "_chroot_server", lambda suite: moved)
    monkeypatch.setattr("platform.freedesktop_os_release", dict)
    with pytest.raises(NodeUnavailable, match=r"4\.3 was wanted, but .* sid is 5\.0\.1"):
        obtain.server("4.3")


def test_an_unpacked_server_is_found_with_its_version(root: Path) -> None:
    unpack(root, "4.0.5")
    found = obtain.find(root)
    assert found == obtain.Server(root, "4.0.5", Path("/usr/lib/rabbitmq/bin"))
    assert found.in_chroot


def test_services_are_held_back_while_installing_and_the_policy_returns(root: Path) -> None:
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("the machine's own")
    with no_service_starts(root):
        assert policy.read_text().endswith("exit 101\n")
    assert policy.read_text() == "the machine's own"


def test_without_a_policy_before_there_is_none_after(root: Path) -> None:
    with no_service_starts(root):
        pass
    assert list((root / "usr/sbin").iterdir()) == []


def test_an_installation_killed_half_way_is_mended_by_the_next(root: Path) -> None:
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("the machine's own")
    killed = no_service_starts(root)
    killed.__enter__()
    with no_service_starts(root):
        pass
    assert policy.read_text() == "the machine's own"


def test_the_hosts_freshness_rules_and_only_they_go_into_a_chroot(tmp_path: Path) -> None:
    (tmp_path / "10check").write_text('Acquire::Check-Valid-Until "false";\nAPT::Other "1";\n')
    assert freshness_rules(tmp_path) == 'Acquire::Check-Valid-Until "false";\n'
    assert freshness_rules(tmp_path / "none") == ""


def test_the_cache_folder_is_the_chosen_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_AGENTS_NODES_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


def test_a_chosen_cache_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_AGENTS_NODES_CACHE", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(NodeUnavailable, match="belongs to another user"):
        cache_folder()


def test_the_usual_cache_folder_of_another_user_gives_way_to_an_own_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMQP_AGENTS_NODES_CACHE", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    usual = tmp_path / "amqp-agents-nodes"
    mine = tmp_path / "amqp-agents-nodes-7"
    monkeypatch.setattr("os.geteuid", lambda: 7)
    monkeypatch.setattr("tests.nodes.place._own", lambda folder: folder != usual)
    assert cache_folder() == mine
