"""Reading the address of RabbitMQ from one setting."""

import pytest
from pydantic import SecretStr

from amqp_agents.brokers.rabbitmq.address import management_url, parse_address
from amqp_agents.errors import ConfigurationError


def test_one_url_is_one_host() -> None:
    address = parse_address(SecretStr("amqp://ann:p%40ss@rabbit:5673/orders"))
    assert address.hosts == "rabbit:5673"
    assert (address.user, address.password, address.vhost) == ("ann", "p@ss", "orders")


@pytest.mark.parametrize(
    ("text", "vhost"),
    [
        ("amqp://rabbit", "/"),
        ("amqp://rabbit/", "/"),
        ("amqp://rabbit//", "/"),
        ("amqp://rabbit/%2F", "/"),
        ("amqp://rabbit/a%2Fb", "a/b"),
    ],
)
def test_the_vhost_may_be_left_out_or_escaped(text: str, vhost: str) -> None:
    address = parse_address(SecretStr(text))
    assert (address.vhost, address.user, address.password) == (vhost, "guest", "guest")


@pytest.mark.parametrize(
    "text",
    [
        "amqp://a:b@one,two:5673/v?heartbeat=5",
        "amqp://a:b@one/v?heartbeat=5,amqp://a:b@two:5673/v?heartbeat=5",
        "amqp://a:b@one/v?heartbeat=5  amqp://a:b@two:5673/v?heartbeat=5",
    ],
)
def test_several_hosts_share_login_vhost_and_options(text: str) -> None:
    address = parse_address(SecretStr(text))
    assert address.hosts == "one:5672, two:5673"
    assert {(url.user, url.path, url.query["heartbeat"]) for url in address.urls} == {
        ("a", "/v", "5")
    }
    assert sorted(address.shuffled()) == sorted(address.urls)


def test_an_ipv6_host_keeps_its_brackets() -> None:
    address = parse_address(SecretStr("amqp://[::1]:5673/v"))
    assert address.urls[0].host == "::1"
    assert management_url(address) == "http://[::1]:15672"


def test_tls_has_ports_of_its_own() -> None:
    address = parse_address(SecretStr("amqps://rabbit/"))
    assert address.hosts == "rabbit:5671"
    assert management_url(address) == "https://rabbit:15671"


def test_certificates_name_no_user() -> None:
    assert parse_address(SecretStr("amqps://rabbit/v?auth=external")).user is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("rabbit:5672", "must begin with amqp:// or amqps://"),
        ("http://rabbit", "must begin with amqp:// or amqps://"),
        ("amqp://", "host or port cannot be read"),
        ("amqp://a:b@:5672/v", "host or port cannot be read"),
        ("amqp://a:b@rabbit:port/v", "host or port cannot be read"),
        ("amqp://a:b@rabbit:99999/v", "host or port cannot be read"),
        ("amqp://a:hush/hush@rabbit/v", "percent-encode"),
        ("amqp://a:12/hush@rabbit/v", "percent-encode"),
        ("amqp://a:hush#hush@rabbit/v", "percent-encode"),
        ("amqp://a:hush?hush@rabbit/v", "percent-encode"),
        ("amqp://a:hush@one/v,amqp://a:other@two/v", "the same user, password and vhost"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_showing_it(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match="AMQP_AGENTS_URL") as caught:
        parse_address(SecretStr(text))
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)
