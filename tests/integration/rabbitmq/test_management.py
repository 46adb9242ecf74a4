"""The client of the management API."""

from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from amqp_agents.brokers.management import Management, ManagementError
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.errors import BrokerConnectionError, ConfigurationError
from tests.nodes.endpoint import Endpoint
from tests.nodes.ports import free_port

pytestmark = pytest.mark.rabbitmq


def client(url: str, vhost_url: str, password: str = "guest") -> Management:
    vhost = urlsplit(vhost_url).path[1:]
    return Management(SecretStr(url), user="guest", password=password, vhost=vhost)


async def test_it_shows_the_vhost_and_the_user(
    broker: RabbitMQBroker, rabbitmq: Endpoint, vhost_url: str
) -> None:
    async with client(rabbitmq.management_url, vhost_url) as management:
        assert (await management.whoami())["name"] == "guest"
        version = (await management.overview())["rabbitmq_version"]
        assert version.startswith(".".join(map(str, broker.version)))
        assert [each["name"] for each in await management.queues()] == ["work"]
        assert "work" in {each["name"] for each in await management.exchanges()}
        assert ("work", "work", "work") in {
            (each["source"], each["destination"], each["routing_key"])
            for each in await management.bindings()
        }
        assert await management.policies() == []
        assert (await management.queue("work") or {})["durable"] is True
        assert await management.queue("no such queue") is None


async def test_a_login_in_its_own_url_comes_first(rabbitmq: Endpoint, vhost_url: str) -> None:
    url = rabbitmq.management_url.replace("http://", "http://guest:guest@") + "/api/"
    async with client(url, vhost_url, password="wrong") as management:
        assert (await management.whoami())["name"] == "guest"


async def test_a_refused_login_is_told_without_the_password(
    rabbitmq: Endpoint, vhost_url: str
) -> None:
    url = rabbitmq.management_url.replace("http://", "http://guest:hush@")
    async with client(url, vhost_url) as management:
        with pytest.raises(ManagementError, match="answered 401") as caught:
            await management.whoami()
    assert caught.value.status == 401
    assert "tag" in str(caught.value)
    assert "hush" not in str(caught.value)


async def test_an_absent_api_is_told_with_the_remedy(vhost_url: str) -> None:
    url = f"http://guest:hush@127.0.0.1:{free_port()}"
    async with client(url, vhost_url) as management:
        with pytest.raises(BrokerConnectionError, match="AMQP_AGENTS_MANAGEMENT_URL") as caught:
            await management.overview()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "rabbit:15672", "amqp://rabbit", "http://"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must be http://host:port"):
        Management(SecretStr(url), user="guest", password="guest", vhost="/")
