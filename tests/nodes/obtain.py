"""A RabbitMQ server of a named version on this machine: found, else installed; never a service.

A version is the package of one Debian release. On that release the host's own package is used;
elsewhere the release is unpacked into a chroot under the cache folder.
"""

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.nodes.install import build_chroot, chroot_complete, half_installed, install_on_host, lock
from tests.nodes.place import NodeUnavailable, cache_folder

SUITES = {"3.10": "bookworm", "4.0": "trixie", "4.3": "sid"}
VERSIONS = (*SUITES, "system")

_PROGRAMS = (
    "usr/lib/rabbitmq/bin",
    "opt/homebrew/opt/rabbitmq/sbin",
    "usr/local/opt/rabbitmq/sbin",
)


@dataclass(frozen=True, slots=True)
class Server:
    """An installed RabbitMQ: `root` is / or a chroot, `programs` its commands seen from inside."""

    root: Path
    version: str
    programs: Path

    @property
    def in_chroot(self) -> bool:
        """Whether its commands have to be entered through `chroot`."""
        return self.root != Path("/")


def server(version: str) -> Server:
    """The server of `version`, installed first where that is possible.

    Several processes may ask at once: one installs, the others wait.

    Raises: NodeUnavailable with one sentence that says what to install.
    """
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise NodeUnavailable(f"RabbitMQ {version!r} is not known here: use one of {known}")
    suite = SUITES.get(version)
    if suite is None:
        return _host_server()
    on_host = suite == _release().get("VERSION_CODENAME")
    found = _host_server() if on_host else _chroot_server(suite)
    if not found.version.startswith(f"{version}."):
        raise NodeUnavailable(
            f"RabbitMQ {version} was wanted, but the package of {suite} is {found.version}: "
            f'ask for another version, or for "system" to take what the host has'
        )
    return found


def find(root: Path) -> Server | None:
    """The server already unpacked under `root`, or None."""
    for programs in _PROGRAMS:
        script = root / programs / "rabbitmq-server"
        if script.exists():
            return Server(root, _version_of(script), Path("/") / programs)
    return None


def _version_of(script: Path) -> str:
    match = re.search(r"\d+\.\d+\.\d+", script.resolve().parents[1].name)
    return match.group() if match else "unknown"


def _release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _has_apt() -> bool:
    names = f"{_release().get('ID', '')} {_release().get('ID_LIKE', '')}".split()
    return bool({"debian", "ubuntu"} & set(names)) and shutil.which("apt-get") is not None


def _host_server() -> Server:
    found = find(Path("/"))
    if found is None or half_installed():
        _require_apt_as_root()
        with lock("host") as held:
            if find(Path("/")) is None or half_installed():
                install_on_host(held)
        found = find(Path("/"))
    if found is None:
        raise NodeUnavailable(
            "the package rabbitmq-server was installed, but holds no rabbitmq-server program"
        )
    return found


def _require_apt_as_root() -> None:
    if not _has_apt():
        brew = sys.platform == "darwin"
        mend = "run `brew install rabbitmq`" if brew else "install the package rabbitmq-server"
        raise NodeUnavailable(f"no RabbitMQ is installed here: {mend}, or start Docker")
    if os.geteuid() != 0:
        raise NodeUnavailable(
            "no RabbitMQ is installed here: run `sudo apt-get install rabbitmq-server`, "
            "or start Docker"
        )


def _chroot_server(suite: str) -> Server:
    if os.geteuid() != 0:
        raise NodeUnavailable(
            f"RabbitMQ of Debian {suite} runs in a chroot, which only root can enter: run as root, "
            f'or ask for the version "system"'
        )
    if not _has_apt() and shutil.which("debootstrap") is None:
        raise NodeUnavailable(
            f"a chroot of Debian {suite} is made by debootstrap: install the package debootstrap"
        )
    root = cache_folder() / suite
    with lock(suite) as held:
        if not chroot_complete(root):
            build_chroot(root, suite, held)
    found = find(root)
    if found is None:
        raise NodeUnavailable(f"{root} holds no RabbitMQ any more: delete it to have it made again")
    return found
