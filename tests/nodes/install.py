"""Installing RabbitMQ with the distribution's own tools: apt on the host, debootstrap elsewhere."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.nodes.place import NodeUnavailable, cache_folder

_MARKER = ".amqp-agents-complete"
_POLICY_MARK = "# tests/nodes: no service starts while a package is installed"
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")
_INSTALL = (*_APT, "install", "-y", "--no-install-recommends")
_LIMIT_SECONDS = 900


@contextmanager
def lock(name: str) -> Iterator[int]:
    """One installer at a time; its commands inherit the lock, so it lasts until all have ended."""
    with (cache_folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def half_installed() -> bool:
    """Whether an installation of the host's package was interrupted."""
    if shutil.which("dpkg-query") is None:
        return False
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}", "rabbitmq-server"]
    state = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    return state not in ("", "installed", "not-installed", "config-files")


def install_on_host(held: int) -> None:
    """Install the host's package; its service neither starts now nor at the next boot.

    Raises: NodeUnavailable with what the failing command said.
    """
    with no_service_starts(Path("/")):
        if half_installed():
            _run(["dpkg", "--configure", "-a"], held)
        _run([*_APT, "update"], held, check=False)
        _run([*_INSTALL, "rabbitmq-server"], held)
        if Path("/run/systemd/system").exists():
            _run(["systemctl", "disable", "rabbitmq-server"], held, check=False)


def chroot_complete(root: Path) -> bool:
    """Whether the chroot was finished; its marker is written last."""
    return (root / _MARKER).exists()


def build_chroot(root: Path, suite: str, held: int) -> None:
    """Unpack a Debian release with RabbitMQ into `root`, in place of an unfinished one.

    Mounts are private to the commands: none is left when one is killed.

    Raises: NodeUnavailable with what the failing command said.
    """
    if root.exists():
        shutil.rmtree(root)
    if shutil.which("debootstrap") is None:
        _run([*_APT, "update"], held, check=False)
        _run([*_INSTALL, "debootstrap", "debian-archive-keyring"], held)
    private = ["unshare", "--mount", "--"]
    _run([*private, "debootstrap", "--variant=minbase", suite, str(root)], held)
    shutil.copy("/etc/hosts", root / "etc/hosts")
    rules = freshness_rules(Path("/etc/apt/apt.conf.d"))
    (root / "etc/apt/apt.conf.d/99host").write_text(rules)
    inside = [*private, "chroot", str(root), "sh", "-ec", 'mount -t proc proc /proc; "$@"', "sh"]
    with no_service_starts(root):
        _run([*inside, *_APT, "update"], held)
        _run([*inside, *_INSTALL, "rabbitmq-server"], held)
    shutil.rmtree(root / "var/cache/apt", ignore_errors=True)
    (root / _MARKER).write_text("complete\n")


def freshness_rules(folder: Path) -> str:
    """The host's rules on how old a package index may be; a chroot on its mirror needs them."""
    rules = re.compile(r"^.*(?:Check-Valid-Until|Check-Date).*$", re.MULTILINE)
    files = sorted(folder.glob("*")) if folder.is_dir() else []
    lines = [line for file in files for line in rules.findall(file.read_text(errors="replace"))]
    return "".join(f"{line}\n" for line in lines)


@contextmanager
def no_service_starts(root: Path) -> Iterator[None]:
    """Forbid package scripts under `root` to start services; what was there before is put back.

    What a run killed half-way left is mended: its own file goes, the original it kept returns.
    """
    policy = root / "usr/sbin/policy-rc.d"
    kept = policy.with_name("policy-rc.d.amqp-agents-kept")
    if policy.exists() and _POLICY_MARK not in policy.read_text(errors="replace"):
        policy.replace(kept)
    policy.write_text(f"#!/bin/sh\n{_POLICY_MARK}\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        if kept.exists():
            kept.replace(policy)
        else:
            policy.unlink()


def _run(command: list[str], held: int, *, check: bool = True) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(held,),
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NodeUnavailable(f"`{' '.join(command)}` could not be run: {error}") from error
    if check and done.returncode:
        said = done.stdout.strip()[-600:]
        raise NodeUnavailable(f"`{' '.join(command)}` failed with {done.returncode}: {said}")
