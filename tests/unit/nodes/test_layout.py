"""A node's configuration keeps it on loopback and inside its own folder."""

from pathlib import Path

from tests.nodes.layout import Layout
from tests.nodes.ports import Ports

PORTS = Ports(amqp=1, management=2, prometheus=3, distribution=4)


def layout(folder: Path, *plugins: str, conf: str = "") -> Layout:
    return Layout(folder, plugins, conf)


def test_every_listener_is_bound_to_loopback(tmp_path: Path) -> None:
    both = layout(tmp_path, "rabbitmq_management", "rabbitmq_prometheus")
    assert both.configuration(PORTS).splitlines() == [
        "listeners.tcp.1 = 127.0.0.1:1",
        "management.tcp.ip = 127.0.0.1",
        "management.tcp.port = 2",
        "prometheus.tcp.ip = 127.0.0.1",
        "prometheus.tcp.port = 3",
    ]
    erl = both.environment("rabbit@localhost", PORTS)["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    assert erl == "-kernel inet_dist_use_interface {127,0,0,1}"


def test_a_plugin_that_is_off_gets_no_lines_and_own_lines_come_last(tmp_path: Path) -> None:
    bare = layout(tmp_path, conf="heartbeat = 5")
    assert bare.configuration(PORTS) == "listeners.tcp.1 = 127.0.0.1:1\nheartbeat = 5\n"


def test_every_path_of_the_node_is_inside_its_folder(tmp_path: Path) -> None:
    environment = layout(tmp_path).environment("rabbit@localhost", PORTS)
    paths = [value for value in environment.values() if value.startswith("/")]
    assert len(paths) == 9
    assert all(Path(path).is_relative_to(tmp_path) for path in paths)


def test_a_second_start_keeps_the_data_and_forgets_the_output(tmp_path: Path) -> None:
    node = layout(tmp_path, "rabbitmq_management")
    node.write(PORTS)
    (tmp_path / "data" / "kept").touch()
    node.output.write_text("completed with 3 plugins")
    node.write(PORTS)
    assert (tmp_path / "data" / "kept").exists()
    assert node.tail(100) == ""
    assert (tmp_path / "enabled_plugins").read_text() == "[rabbitmq_management].\n"
