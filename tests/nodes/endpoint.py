"""Where the tests' RabbitMQ is, whoever runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tests.nodes.management import Management


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A RabbitMQ for tests; `stop` ends what was started for it, `origin` says whose it is."""

    url: str
    management_url: str
    stop: Callable[[], None]
    origin: str

    @property
    def management(self) -> Management:
        """The management API as the user of the AMQP URL."""
        parts = urlsplit(self.url)
        return Management(
            self.management_url,
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
        )

    def url_for(self, vhost: str) -> str:
        """The AMQP URL of another vhost, for the same user."""
        return with_vhost(self.url, vhost)

    def create_vhost(self, name: str | None = None) -> str:
        """A new vhost in which the URL's user may do everything; returns its name."""
        return self.management.create_vhost(name)

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost and all in it."""
        self.management.delete_vhost(name)


def with_vhost(url: str, vhost: str) -> str:
    """The URL of another vhost on the same broker.

    >>> with_vhost("amqp://u:p@h:5672/?heartbeat=5", "a/b")
    'amqp://u:p@h:5672/a%2Fb?heartbeat=5'
    >>> with_vhost("amqp://h/other", "/")
    'amqp://h/'
    """
    path = "/" if vhost == "/" else f"/{quote(vhost, safe='')}"
    return urlunsplit(urlsplit(url)._replace(path=path))
