"""The management API, as far as tests need it: any call, and a fresh vhost per test."""

import base64
import json
import secrets
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

_LIMIT_SECONDS = 30


class ManagementError(RuntimeError):
    """The management API refused; `status` is the HTTP status."""

    def __init__(self, call: str, status: int, answer: str) -> None:
        super().__init__(f"{call} answered {status}: {answer[:300]}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Management:
    """The management API at `url` (http://host:port), for one user."""

    url: str
    user: str = "guest"
    password: str = "guest"

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One call, `path` without /api/; the decoded JSON, or None for an empty answer.

        Raises: ManagementError for a refusal, OSError when nothing answers.
        """
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"a management URL starts with http:// or https://, not {self.url!r}")
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Basic {login}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_LIMIT_SECONDS) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            raise ManagementError(f"{method} /api/{path}", error.code, text) from error
        return json.loads(data) if data else None

    def create_vhost(self, name: str | None = None) -> str:
        """A new vhost in which this user may do everything; returns its name."""
        name = name or f"test-{secrets.token_hex(6)}"
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.call("PUT", f"vhosts/{quote(name, safe='')}", {})
        self.call(
            "PUT",
            f"permissions/{quote(name, safe='')}/{quote(self.user, safe='')}",
            everything,
        )
        return name

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost and all in it; one that is gone already is no error."""
        try:
            self.call("DELETE", f"vhosts/{quote(name, safe='')}")
        except ManagementError as error:
            if error.status != 404:
                raise
