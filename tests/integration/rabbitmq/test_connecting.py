"""Connecting: what a failure says, and how long anything may take."""

import asyncio
import logging
import time
from urllib.parse import urlsplit

import pytest

from amqp_agents.brokers.base import Publishing
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.errors import BrokerConnectionError
from amqp_agents.protocol.properties import Properties
from tests.conformance.waiting import until
from tests.integration.rabbitmq.conftest import Account, Configure
from tests.nodes.endpoint import Endpoint
from tests.nodes.ports import free_port
from tests.nodes.proxy import Proxy

pytestmark = pytest.mark.rabbitmq

SECRET = "s3cr3t-word"


async def failure(settings: object, limit_seconds: float = 1) -> str:
    """What a client says that cannot connect."""
    broker = RabbitMQBroker(settings, name="test")  # type: ignore[arg-type]
    with pytest.raises(BrokerConnectionError) as caught:
        await broker.connect(timeout_seconds=limit_seconds)
    return str(caught.value)


def replaced(url: str, **parts: str) -> str:
    """The URL with another login, host or vhost."""
    old = urlsplit(url)
    login = parts.get("login", f"{old.username}:{old.password}")
    host = parts.get("host", f"{old.hostname}:{old.port}")
    return f"{parts.get('scheme', 'amqp')}://{login}@{host}{parts.get('path', old.path)}"


async def test_a_broker_that_is_not_there_is_named_with_the_remedy(
    configured: Configure, vhost_url: str
) -> None:
    host = f"127.0.0.1:{free_port()}"
    url = replaced(vhost_url, login=f"guest:{SECRET}", host=host)
    began = time.monotonic()
    told = await failure(configured(url=url))
    assert f"cannot reach RabbitMQ at {host} (connection refused)" in told
    assert "is RabbitMQ running? set AMQP_AGENTS_URL" in told
    assert SECRET not in told
    assert time.monotonic() - began < 2


async def test_a_wrong_password_is_told_apart(configured: Configure, vhost_url: str) -> None:
    told = await failure(configured(url=replaced(vhost_url, login=f"guest:{SECRET}")))
    assert "refused the login of user 'guest'" in told
    assert "AMQP_AGENTS_URL" in told
    assert SECRET not in told


async def test_a_missing_vhost_is_named(configured: Configure, vhost_url: str) -> None:
    told = await failure(configured(url=replaced(vhost_url, path="/no-such-vhost")))
    assert "the vhost 'no-such-vhost'" in told
    assert "rabbitmqctl add_vhost" in told


@pytest.mark.parametrize("change", [{"login": f"guest:{SECRET}"}, {"path": "/no-such-vhost"}])
async def test_what_rabbitmq_refuses_at_first_is_not_tried_again(
    configured: Configure,
    vhost_url: str,
    change: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    began = time.monotonic()
    told = await failure(configured(url=replaced(vhost_url, **change)), limit_seconds=20)
    assert time.monotonic() - began < 1
    assert "refused" in told
    assert "connect_failed" not in caplog.text


async def test_of_several_hosts_one_that_refuses_is_enough_to_give_up(
    configured: Configure, vhost_url: str
) -> None:
    alive = urlsplit(vhost_url)
    hosts = f"127.0.0.1:{free_port()},{alive.hostname}:{alive.port}"
    url = replaced(vhost_url, login=f"guest:{SECRET}", host=hosts)
    assert "refused the login" in await failure(configured(url=url), limit_seconds=20)


async def test_a_client_that_was_refused_can_connect_once_the_password_is_right(
    configured: Configure, account: Account
) -> None:
    await account.grant(read=".*")
    broker = RabbitMQBroker(configured(url=account.url(password="other")), name="test")
    with pytest.raises(BrokerConnectionError, match="refused the login"):
        await broker.connect(timeout_seconds=20)
    await account.put("other")
    await broker.connect(timeout_seconds=10)
    await broker.close()


async def test_a_client_that_was_connected_outlives_a_refusal(
    proxy: Proxy, configured: Configure, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    await account.grant(write=".*")
    broker = RabbitMQBroker(configured(url=account.url(proxy.port)), name="test")
    await broker.connect(timeout_seconds=10)
    await account.put("changed meanwhile")
    proxy.reset()

    async def refused_twice() -> bool:
        lines = [line for line in caplog.messages if "link=test/publish attempt=2" in line]
        return any("refused the login" in line for line in lines)

    await until(refused_twice, "a second refusal")
    await account.put()
    message = Publishing("amq.fanout", "", b"x", Properties(), mandatory=False)
    await broker.publish(message, timeout_seconds=20)
    await broker.close()


async def test_an_unknown_host_is_named(configured: Configure, vhost_url: str) -> None:
    told = await failure(configured(url=replaced(vhost_url, host="no-such-host.invalid:5672")))
    assert "no-such-host.invalid:5672 (unknown host name)" in told


async def test_tls_against_a_plain_port_is_told_apart(
    configured: Configure, vhost_url: str
) -> None:
    told = await failure(configured(url=replaced(vhost_url, scheme="amqps")))
    assert "(TLS: " in told
    assert "amqps:// needs the TLS port" in told


async def test_a_port_that_speaks_something_else_is_told_apart(
    configured: Configure, vhost_url: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        told = await failure(configured(url=replaced(vhost_url, host=host)))
    assert "is this the AMQP port" in told


async def test_a_silent_peer_costs_no_more_than_the_limits(
    proxy: Proxy, configured: Configure, vhost_url: str
) -> None:
    proxy.black_hole()
    began = time.monotonic()
    told = await failure(configured(url=proxy.url(vhost_url), connect_timeout_seconds=0.5))
    assert "(no answer in time)" in told
    assert time.monotonic() - began < 2


async def test_connecting_waits_for_a_broker_that_starts_later(
    proxy: Proxy, configured: Configure, vhost_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    proxy.refuse()
    broker = RabbitMQBroker(configured(url=proxy.url(vhost_url)), name="test")
    connecting = asyncio.create_task(broker.connect(timeout_seconds=20))

    async def tried_twice() -> bool:
        return "connect_failed link=test/publish attempt=2" in caplog.text

    await until(tried_twice, "a second attempt")
    proxy.heal()
    await connecting
    await broker.close()
    attempts = [line for line in caplog.messages if "connect_failed link=test/publish" in line]
    assert [line.split("attempt=")[1].split()[0] for line in attempts[:2]] == ["1", "2"]
    assert "guest:guest" not in caplog.text


async def test_a_client_can_connect_again_after_it_failed(
    proxy: Proxy, configured: Configure, vhost_url: str
) -> None:
    proxy.refuse()
    broker = RabbitMQBroker(configured(url=proxy.url(vhost_url)), name="test")
    with pytest.raises(BrokerConnectionError):
        await broker.connect(timeout_seconds=0.3)
    proxy.heal()
    await broker.connect(timeout_seconds=10)
    await broker.close()


async def test_of_several_hosts_one_that_answers_is_enough(
    configured: Configure, vhost_url: str
) -> None:
    alive = urlsplit(vhost_url)
    hosts = f"127.0.0.1:{free_port()},{alive.hostname}:{alive.port}"
    broker = RabbitMQBroker(configured(url=replaced(vhost_url, host=hosts)), name="test")
    await broker.connect(timeout_seconds=10)
    assert broker.version >= (3, 10, 0)
    await broker.close()


async def test_operators_see_what_each_connection_is_for(
    broker: RabbitMQBroker, rabbitmq: Endpoint, vhost_url: str
) -> None:
    path = f"vhosts/{urlsplit(vhost_url).path[1:]}/connections"
    wanted = {"test/publish", "test/consume", "test/admin"}

    async def shown() -> bool:
        found = await asyncio.to_thread(rabbitmq.management.call, "GET", path)
        return {each["client_properties"].get("connection_name") for each in found} == wanted

    await until(shown, "the three connections in the management API")


async def test_closing_into_a_black_hole_is_quick_and_may_be_repeated(
    proxied: RabbitMQBroker, proxy: Proxy
) -> None:
    subscription = await proxied.consume("work", lambda _: None, prefetch=1)
    await subscription.ready(10)
    proxy.black_hole()
    began = time.monotonic()
    await proxied.close()
    assert time.monotonic() - began < 5
    await proxied.close()


async def test_nothing_works_after_closing(broker: RabbitMQBroker) -> None:
    await broker.close()
    with pytest.raises(BrokerConnectionError, match="closed"):
        await broker.depth("work")
