"""A cluster of plain processes on one machine, its nodes found by classic_config."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from tests.nodes.group import Group
from tests.nodes.node import PLUGINS, Node
from tests.nodes.obtain import server


class Cluster:
    """`size` nodes that share a cookie and an epmd; `with Cluster("4.0") as cluster:` forms it.

    A minority pauses itself (RabbitMQ below 4.3; later versions ignore the setting).
    Source: https://www.rabbitmq.com/docs/cluster-formation
    """

    def __init__(
        self,
        version: str = "system",
        *,
        size: int = 3,
        plugins: tuple[str, ...] = PLUGINS,
        conf: str = "",
    ) -> None:
        self._version = version
        self._names = tuple(f"rabbit{number}" for number in range(1, size + 1))
        self._plugins = plugins
        self._conf = f"{cluster_lines(self._names)}\n{conf}"
        self._group: Group | None = None
        self.nodes: tuple[Node, ...] = ()

    @property
    def urls(self) -> list[str]:
        """The AMQP URL of every node, as guest on the default vhost."""
        return [node.url for node in self.nodes]

    def urls_for(self, vhost: str) -> list[str]:
        """The AMQP URL of `vhost` on every node, as guest."""
        return [node.url_for(vhost) for node in self.nodes]

    def start(self) -> Self:
        """Start all nodes at the same time and wait until they form one cluster.

        Raises: NodeFailed with the log of a node that did not start; NodeUnavailable.
        """
        if self._group is None:
            group = Group(server(self._version))
            self._group = group
            self.nodes = tuple(
                Node(name=name, plugins=self._plugins, conf=self._conf, group=group)
                for name in self._names
            )
            group.run_epmd()
        self._at_once(Node.start)
        self.nodes[0].ctl("await_online_nodes", str(len(self.nodes)))
        return self

    def stop(self) -> None:
        """Shut all nodes down in good order; `start` brings the same cluster back."""
        self._at_once(Node.stop)

    def close(self) -> None:
        """End all nodes at once and delete their folder."""
        for node in self.nodes:
            node.close()
        if self._group is not None:
            self._group.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _at_once(self, action: Callable[[Node], object]) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(action, self.nodes))


def cluster_lines(names: tuple[str, ...]) -> str:
    """The lines of rabbitmq.conf by which nodes of these names find each other.

    >>> print(cluster_lines(("rabbit1",)))
    cluster_formation.peer_discovery_backend = classic_config
    cluster_partition_handling = pause_minority
    cluster_formation.classic_config.nodes.1 = rabbit1@localhost
    """
    return "\n".join(
        [
            "cluster_formation.peer_discovery_backend = classic_config",
            "cluster_partition_handling = pause_minority",
            *(
                f"cluster_formation.classic_config.nodes.{number} = {name}@localhost"
                for number, name in enumerate(names, 1)
            ),
        ]
    )
