"""Private nodes keep their promises: data over restarts and crashes, and no process left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pytest
from pamqp.common import FieldTable

from tests.nodes.cluster import Cluster
from tests.nodes.management import ManagementError
from tests.nodes.node import Node, NodeFailed
from tests.nodes.obtain import server
from tests.nodes.place import NodeUnavailable
from tests.nodes.processes import Process
from tests.nodes.proxy import Proxy

pytestmark = [pytest.mark.rabbitmq, pytest.mark.node]

ROOT = Path(__file__).parents[2]
QUORUM: FieldTable = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def version() -> str:
    wanted = os.environ.get("AMQP_AGENTS_TEST_VERSION", "system")
    try:
        server(wanted)
    except NodeUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return wanted


@pytest.fixture(scope="module")
def node(version: str) -> Iterator[Node]:
    with Node(version) as running:
        yield running


async def publish(url: str, body: bytes, *, arguments: FieldTable | None = None) -> None:
    async with await aio_pika.connect(url, timeout=10) as connection:
        channel = await connection.channel(publisher_confirms=True)
        queue = await channel.declare_queue("kept", durable=True, arguments=arguments)
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key=queue.name, timeout=20)


async def take_all(url: str) -> list[bytes]:
    async with await aio_pika.connect(url, timeout=10) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("kept", ensure=False)
        bodies = []
        while message := await queue.get(fail=False, no_ack=True, timeout=10):
            bodies.append(message.body)
        return bodies


async def test_confirmed_messages_survive_a_restart_and_a_crash_and_nothing_stays_behind(
    version: str,
) -> None:
    node = Node(version)
    try:
        await asyncio.to_thread(node.start)
        await publish(node.url, b"first")
        await asyncio.to_thread(node.restart)
        await publish(node.url, b"second")
        await asyncio.to_thread(node.kill)
        assert not node.running
        await asyncio.to_thread(node.start)
        assert await take_all(node.url) == [b"first", b"second"]
        beam, epmd, folder = node.process, node.group.epmd, node.group.folder
    finally:
        await asyncio.to_thread(node.close)
    assert epmd is not None
    assert not beam.alive
    assert not epmd.alive
    assert not folder.exists()


async def test_a_vhost_is_fresh_and_goes_with_all_in_it(node: Node) -> None:
    vhost = await asyncio.to_thread(node.create_vhost)
    async with Proxy(node.ports.amqp) as proxy:
        await publish(proxy.url(node.url_for(vhost)), b"x")
        assert proxy.counters.bytes_up > 0
    await asyncio.to_thread(node.delete_vhost, vhost)
    with pytest.raises(ManagementError, match="404"):
        await asyncio.to_thread(node.management.call, "GET", f"vhosts/{vhost}")


def test_the_node_answers_its_own_command_line(node: Node) -> None:
    assert "guest" in node.ctl("list_users")
    assert node.version in node.ctl("server_version", program="rabbitmq-diagnostics")
    with pytest.raises(NodeFailed, match="no_such_command"):
        node.ctl("no_such_command")


def test_a_killed_test_run_leaves_no_node_behind(version: str) -> None:
    program = (
        "import sys; from tests.nodes.node import Node; node = Node(sys.argv[1]).start();"
        "group = node.group; print(group.folder, node.pid, group.epmd.pid, group.guard.pid);"
        "sys.stdout.flush(); input()"
    )
    command = [sys.executable, "-c", program, version]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        folder, *pids = run.stdout.readline().split()
        left = [Process.of(int(pid)) for pid in pids]
        assert all(process.alive for process in left)
        run.send_signal(signal.SIGKILL)
        run.wait(10)
    assert all(process.wait_gone(30) for process in left)
    assert not Path(folder).exists()


def test_a_command_runs_with_a_node_and_its_exit_code_is_kept(version: str) -> None:
    program = "import os, sys; print(os.environ['AMQP_AGENTS_TEST_URL']); sys.exit(7)"
    command = [sys.executable, "-m", "tests.nodes", "with", version, "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.startswith("amqp://guest:guest@127.0.0.1:")


async def test_a_cluster_confirms_while_one_node_is_dead_and_takes_it_back(version: str) -> None:
    cluster = Cluster(version)
    try:
        await asyncio.to_thread(cluster.start)
        first, second, _ = cluster.nodes
        await publish(second.url, b"all", arguments=QUORUM)
        await asyncio.to_thread(first.kill)
        await publish(second.url, b"two", arguments=QUORUM)
        await asyncio.to_thread(first.start)
        assert await take_all(first.url) == [b"all", b"two"]
    finally:
        await asyncio.to_thread(cluster.close)
    assert not any(node.process.alive for node in cluster.nodes)
