"""RabbitMQ's management API (HTTP): what AMQP cannot see or do.

Source: https://www.rabbitmq.com/docs/http-api-reference
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx
from pydantic import SecretStr

from amqp_agents.errors import BrokerConnectionError, BrokerError, ConfigurationError

LIMIT_SECONDS = 5.0
REFUSED = frozenset({401, 403})


class ManagementError(BrokerError):
    """The management API answered, and refused; `status` is the HTTP status."""

    def __init__(self, call: str, status: int, reason: str) -> None:
        self.status = status
        mend = "; the user lacks a tag (management, policymaker)" if status in REFUSED else ""
        super().__init__(f"management API: {call} answered {status} {reason}{mend}".rstrip())


class Management:
    """A client of the management API, for one vhost and one user.

    Raises: BrokerConnectionError if nothing answers; ManagementError for a refusal.
    """

    def __init__(self, url: SecretStr, *, user: str, password: str, vhost: str) -> None:
        login, self.url = _split_login(url)
        self._vhost = quote(vhost, safe="")
        self._client = httpx.AsyncClient(
            base_url=f"{self.url}/api/",
            auth=login or (user, password),
            timeout=LIMIT_SECONDS,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the HTTP connections; idempotent."""
        await self._client.aclose()

    async def overview(self) -> dict[str, Any]:
        """Return versions, totals and listeners of the node that answers."""
        return dict(await self._call("GET", "overview"))

    async def whoami(self) -> dict[str, Any]:
        """Return the user's name and tags."""
        return dict(await self._call("GET", "whoami"))

    async def permissions(self, user: str) -> dict[str, Any] | None:
        """Return the patterns of what a user may configure, write and read; None for nothing.

        Only administrators may see them.
        """
        path = f"permissions/{self._vhost}/{quote(user, safe='')}"
        try:
            return dict(await self._call("GET", path))
        except ManagementError as error:
            if error.status == 404:
                return None
            raise

    async def exchanges(self) -> list[dict[str, Any]]:
        """Return every exchange of the vhost, the default one (named '') included."""
        return list(await self._call("GET", f"exchanges/{self._vhost}"))

    async def queues(self) -> list[dict[str, Any]]:
        """Return every queue of the vhost.

        Statistics (messages, consumers, policy) come some seconds late on old brokers, and
        a missing field means unknown, not zero.
        """
        return list(await self._call("GET", f"queues/{self._vhost}"))

    async def queue(self, name: str) -> dict[str, Any] | None:
        """Return one queue, or None if it does not exist."""
        try:
            return dict(await self._call("GET", f"queues/{self._vhost}/{quote(name, safe='')}"))
        except ManagementError as error:
            if error.status == 404:
                return None
            raise

    async def bindings(self) -> list[dict[str, Any]]:
        """Return every binding of the vhost, those of the default exchange included."""
        return list(await self._call("GET", f"bindings/{self._vhost}"))

    async def policies(self) -> list[dict[str, Any]]:
        """Return every policy of the vhost."""
        return list(await self._call("GET", f"policies/{self._vhost}"))

    async def put_policy(self, name: str, policy: Mapping[str, Any]) -> None:
        """Create or replace a policy."""
        path = f"policies/{self._vhost}/{quote(name, safe='')}"
        await self._call("PUT", path, dict(policy))

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        call = f"{method} /api/{path}"
        try:
            answer = await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise BrokerConnectionError(
                f"the management API at {self.url} does not answer ({type(error).__name__}); "
                "set AMQP_AGENTS_MANAGEMENT_URL, or enable the plugin rabbitmq_management"
            ) from error
        if answer.is_error:
            raise ManagementError(call, answer.status_code, _reason(answer))
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            raise ManagementError(call, answer.status_code, "without JSON") from None


def _split_login(url: SecretStr) -> tuple[tuple[str, str] | None, str]:
    """Return the login in the URL, if it has one, and the URL without it."""
    parts = urlsplit(url.get_secret_value().strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            "AMQP_AGENTS_MANAGEMENT_URL must be http://host:port or https://host:port"
        )
    host = parts.netloc.rpartition("@")[2]
    bare = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    login = None
    if parts.username is not None:
        login = unquote(parts.username), unquote(parts.password or "")
    return login, bare.removesuffix("/api")


def _reason(answer: httpx.Response) -> str:
    try:
        told = answer.json()
        return str(told.get("reason") or told.get("error") or "")[:300]
    except (ValueError, AttributeError):
        return answer.reason_phrase
