"""What a node's folder holds, and the environment that keeps a node inside it."""

from dataclasses import dataclass
from pathlib import Path

from tests.nodes.ports import Ports

_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder of one node: configuration, data, log and output."""

    folder: Path
    plugins: tuple[str, ...]
    conf: str

    @property
    def output(self) -> Path:
        """What the server prints; emptied at every start."""
        return self.folder / "output.log"

    def write(self, ports: Ports) -> None:
        """Write the configuration; the data of an earlier run stays."""
        for part in ("data", "log", "conf.d"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self.output.write_text("")
        (self.folder / "environment").write_text("")
        (self.folder / "enabled_plugins").write_text(f"[{','.join(self.plugins)}].\n")
        (self.folder / "rabbitmq.conf").write_text(self.configuration(ports))

    def configuration(self, ports: Ports) -> str:
        """The text of rabbitmq.conf: every listener on loopback, then the lines asked for."""
        lines = [f"listeners.tcp.1 = 127.0.0.1:{ports.amqp}"]
        listeners = {"management": ports.management, "prometheus": ports.prometheus}
        for plugin, port in listeners.items():
            if f"rabbitmq_{plugin}" in self.plugins:
                lines += [f"{plugin}.tcp.ip = 127.0.0.1", f"{plugin}.tcp.port = {port}"]
        return "\n".join([*lines, self.conf]).rstrip() + "\n"

    def environment(self, name: str, ports: Ports) -> dict[str, str]:
        """The variables of node `name`; nothing under /etc/rabbitmq or /var/lib/rabbitmq is read.

        RUNNING_UNDER_SYSTEMD has the start script become the Erlang VM: the child's pid is the
        node's.
        """
        paths = {
            "MNESIA_BASE": "data",
            "LOG_BASE": "log",
            "GENERATED_CONFIG_DIR": "generated",
            "ENABLED_PLUGINS_FILE": "enabled_plugins",
            "CONFIG_FILE": "rabbitmq.conf",
            "CONFIG_FILES": "conf.d",
            "ADVANCED_CONFIG_FILE": "advanced.config",
            "CONF_ENV_FILE": "environment",
            "PID_FILE": "pid",
        }
        return {
            "RUNNING_UNDER_SYSTEMD": "yes",
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_DIST_PORT": str(ports.distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _LOOPBACK,
            "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK,
            **{f"RABBITMQ_{key}": str(self.folder / part) for key, part in paths.items()},
        }

    def tail(self, characters: int) -> str:
        """The end of the output and of each log file."""
        files = [self.output, *sorted((self.folder / "log").glob("*.log"))]
        texts = [file.read_text(errors="replace").strip() for file in files if file.exists()]
        return "\n".join(text[-characters:] for text in texts if text)
