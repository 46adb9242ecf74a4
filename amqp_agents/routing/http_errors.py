"""What an HTTP client's error tells, of whichever library: looked at, never imported."""

from collections.abc import Mapping
from urllib.parse import urlsplit

# Of the 4xx answers these are about our access or the server's load, not about one request.
_NOT_THE_REQUEST = frozenset({401, 402, 403, 407, 408, 425, 429})


def is_about_request(error: BaseException) -> bool:
    """Return whether a server answered 4xx to what was asked, and so is well itself.

    Reads `status_code` of the error or its `response`, as httpx, requests and the clients of
    model providers have it.

    >>> refused = ValueError("unprocessable")
    >>> refused.status_code = 422
    >>> is_about_request(refused), is_about_request(ValueError("x"))
    (True, False)
    """
    for holder in (error, attribute(error, "response")):
        status = attribute(holder, "status_code")
        if type(status) is int:
            return 400 <= status < 500 and status not in _NOT_THE_REQUEST
    return False


def http_host_of(error: BaseException) -> str | None:
    """Return `http:<host>` of the request that failed, if the error knows its request."""
    url = attribute(attribute(error, "request"), "url")
    if url is None:
        return None
    try:
        host = urlsplit(str(url)).hostname
    except ValueError:
        return None
    return f"http:{host}" if host else None


def retry_after_header_of(error: BaseException) -> object:
    """Return the Retry-After header of the answer, as it came."""
    headers = attribute(attribute(error, "response"), "headers")
    return headers.get("Retry-After") if isinstance(headers, Mapping) else None


def attribute(holder: object, name: str) -> object:
    """Return an attribute of a foreign error, or None however it is missing."""
    try:
        return getattr(holder, name, None)
    except RuntimeError:  # httpx: an error that was never given its request
        return None
