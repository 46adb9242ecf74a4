"""TCP ports of 127.0.0.1: finding free ones, and asking whether one is served."""

import random
import socket
from dataclasses import dataclass, field

_LOWEST, _HIGHEST = 10_000, 32_000
_TRIES = 200


def free_port() -> int:
    """A TCP port that is free now, from below the range that outgoing connections take.

    So a node that is down for a while finds its port free again.
    """
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free TCP port in {_LOWEST}..{_HIGHEST} after {_TRIES} tries")


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether `host` accepts connections on `port`."""
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one node."""

    amqp: int = field(default_factory=free_port)
    management: int = field(default_factory=free_port)
    prometheus: int = field(default_factory=free_port)
    distribution: int = field(default_factory=free_port)
