"""Where RabbitMQ is: one URL, or several hosts to try in turn."""

import random
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from pydantic import SecretStr
from yarl import URL

from amqp_agents.errors import ConfigurationError

_PORTS = {"amqp": 5672, "amqps": 5671}
_BETWEEN_URLS = re.compile(r"[,\s]\s*(?=amqps?://)")


@dataclass(frozen=True)
class Address:
    """The hosts of one broker, with the same user and vhost on each of them."""

    urls: tuple[URL, ...]

    @property
    def user(self) -> str | None:
        """The user the connections log in as; None if the server decides (TLS certificates)."""
        if self.urls[0].query.get("auth", "plain").lower() == "external":
            return None
        return self.urls[0].user or "guest"

    @property
    def password(self) -> str:
        return self.urls[0].password or "guest"

    @property
    def vhost(self) -> str:
        return unquote(self.urls[0].raw_path[1:]) or "/"

    @property
    def hosts(self) -> str:
        """Every host with its port, as sentences name them."""
        return ", ".join(host_and_port(url) for url in self.urls)

    def shuffled(self) -> list[URL]:
        """Return the URLs in a new order, so that a fleet does not gather on one host."""
        return random.sample(self.urls, len(self.urls))


def host_and_port(url: URL) -> str:
    """Return what a sentence may show of a URL: never the user or the password.

    >>> host_and_port(URL("amqp://guest:secret@rabbit:5673/orders"))
    'rabbit:5673'
    """
    return f"{url.host}:{url.port or _PORTS[url.scheme]}"


def parse_address(text: SecretStr) -> Address:
    """Read one URL, one URL with several hosts, or several URLs, separated by commas.

    Raises: ConfigurationError that names the fault without showing the URL.

    >>> parse_address(SecretStr("amqp://a:b@one,two:5673/orders")).hosts
    'one:5672, two:5673'
    """
    parts = [part for part in _BETWEEN_URLS.split(text.get_secret_value().strip()) if part]
    urls = [url for part in parts for url in _hosts_of(part)]
    if not urls:
        raise _refused("it is empty")
    if len({(url.user, url.password, url.raw_path) for url in urls}) > 1:
        raise _refused("all its URLs must have the same user, password and vhost")
    return Address(tuple(urls))


def _hosts_of(part: str) -> list[URL]:
    scheme, separator, rest = part.partition("://")
    if not separator or scheme not in _PORTS:
        raise _refused("it must begin with amqp:// or amqps://")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    return [_checked(f"{scheme}://{login}{at}{host}{slash}{path}") for host in hosts.split(",")]


def _checked(text: str) -> URL:
    try:
        url = URL(text)
        readable = bool(url.host) and url.port != 0
    except ValueError:
        readable = False
    # A raw '/', '#' or '?' in a password ends the host too early, with the '@' behind it.
    if not readable or url.fragment or "@" in url.raw_path:
        raise _refused(
            "host or port cannot be read; percent-encode special characters of user, password "
            "and vhost ('/' is %2F)"
        )
    return url


def _refused(reason: str) -> ConfigurationError:
    form = "amqp://user:password@host:port/vhost"
    return ConfigurationError(f"AMQP_AGENTS_URL is no address of RabbitMQ: {reason} ({form})")


def management_url(address: Address) -> str:
    """Return where the management API of the first host is by default.

    >>> management_url(parse_address(SecretStr("amqp://a:b@rabbit/")))
    'http://rabbit:15672'
    """
    url = address.urls[0]
    host = f"[{url.host}]" if ":" in (url.host or "") else quote(url.host or "", safe=".-_")
    return f"https://{host}:15671" if url.scheme == "amqps" else f"http://{host}:15672"
