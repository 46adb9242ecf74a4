"""What the client library raises, as errors of ours; the noise it logs, turned down."""

import asyncio
import logging
import random
import socket
import ssl
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiormq import exceptions as library
from pamqp.exceptions import PAMQPException
from yarl import URL

from amqp_agents.brokers.rabbitmq.address import host_and_port
from amqp_agents.errors import BrokerConnectionError
from amqp_agents.observability import Event, log_event

T = TypeVar("T")

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0  # how long the broker may take to answer a call on a channel
APPLY_REMEDY = "run 'amqp-agents topology apply' or use run --declare"

# Every family of errors the library has been seen, or can be expected, to let through. A loop
# that must not end catches these; an error of another kind is a mistake of ours.
UNEXPECTED = (
    library.AMQPError,
    PAMQPException,
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    EOFError,
    asyncio.InvalidStateError,
)


class ConnectionLost(BrokerConnectionError):  # noqa: N818 - said as it is
    """The connection or channel under a call is gone; a new one is on its way."""


class ConnectRefused(BrokerConnectionError):  # noqa: N818 - said as it is
    """RabbitMQ itself said no: to the login, or to the vhost. Waiting mends neither."""


@contextmanager
def library_faults() -> Iterator[None]:
    """Turn a lost connection, in every form the library gives it, into ConnectionLost.

    The library ends waiting calls with CancelledError when a connection is stuck or closed.
    Nobody cancelled the task then, and the error would pass every `except Exception`.
    Errors that close a channel for a reason (404, 403, 406) pass unchanged.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConnectionLost("the connection to RabbitMQ was lost") from error
    except TimeoutError:
        raise
    except (library.AMQPError, OSError, RuntimeError) as error:
        if _means_lost(error):
            raise ConnectionLost(f"the connection to RabbitMQ was lost: {_told(error)}") from error
        raise


def _means_lost(error: Exception) -> bool:
    if isinstance(error, library.ChannelClosed):
        return type(error) is library.ChannelClosed and error.args[:1] == (None,)
    if isinstance(error, RuntimeError):
        # From channel() on a dead connection the library raises a bare RuntimeError.
        ended = isinstance(error.__cause__, StopAsyncIteration)
        return (
            ended or isinstance(error, library.ChannelInvalidStateError) or "closed" in str(error)
        )
    return isinstance(error, library.AMQPConnectionError | library.ProtocolSyntaxError | OSError)


def tell_if_it_dies(task: "asyncio.Task[None]") -> None:
    """Log the error that ends a task which should never end by itself."""

    def told(ended: "asyncio.Task[None]") -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            reason = type(error).__name__
            log_event(log, Event.TASK_DIED, error=error, task=ended.get_name(), reason=reason)

    task.add_done_callback(told)


def backoff_seconds(failures: int, base: float, cap: float) -> float:
    """Return how long to wait before the next attempt: doubling, with jitter, up to `cap`."""
    limit: float = min(cap, base * 2 ** min(failures, 16))
    return limit * (0.5 + random.random() / 2)  # noqa: S311 - jitter is no secret


async def bounded(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Await `work` for at most `seconds`, then leave it behind, cancelled.

    Awaiting its end could take for ever: a cancelled call closes its channel first, and
    waits for room in a queue that nobody empties once the connection is dead.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not done:
        _abandon(task)
        raise TimeoutError
    return task.result()


async def answered(work: Coroutine[Any, Any, T], seconds: float = CALL_SECONDS) -> T:
    """Await the broker's answer to a call. Raises: ConnectionLost if none comes in time."""
    with library_faults():
        try:
            return await bounded(work, seconds)
        except TimeoutError:
            raise ConnectionLost(f"RabbitMQ did not answer within {seconds:g} s") from None


def _abandon(task: "asyncio.Task[Any]") -> None:
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()


def reply_text(error: library.AMQPError) -> str:
    """Return what the broker said when it closed the channel."""
    return str(error.args[-1]) if error.args else type(error).__name__


def connect_failure(error: BaseException, url: URL, *, vhost: str) -> BrokerConnectionError:
    """Say why a connection could not be made, and what mends it; never with the password."""
    where, user = host_and_port(url), url.user or "guest"
    if isinstance(error, library.ProbableAuthenticationError | library.AuthenticationError):
        return ConnectRefused(
            f"RabbitMQ at {where} refused the login of user {user!r}: "
            "check user and password in AMQP_AGENTS_URL"
        )
    if isinstance(error, library.InvalidFrameError):
        # The library loses the broker's own words (530) here.
        return ConnectRefused(
            f"RabbitMQ at {where} refused user {user!r} the vhost {vhost!r}: it does not exist, "
            "or the user has no permissions there; create it (rabbitmqctl add_vhost), grant "
            "them (rabbitmqctl set_permissions -p VHOST USER '.*' '.*' '.*'), or name another "
            "vhost in AMQP_AGENTS_URL"
        )
    reason, mend = _unreachable(error)
    return BrokerConnectionError(f"cannot reach RabbitMQ at {where} ({reason}): {mend}")


def _unreachable(error: BaseException) -> tuple[str, str]:
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError):
        mend = "amqps:// needs the TLS port and a certificate this machine trusts (?cafile=...)"
        return f"TLS: {cause.reason or cause}", mend
    if isinstance(cause, socket.gaierror):
        return "unknown host name", "correct the host in AMQP_AGENTS_URL"
    if isinstance(error, TimeoutError):
        return "no answer in time", "is RabbitMQ running, and the network open? set AMQP_AGENTS_URL"
    if isinstance(error, library.IncompatibleProtocolError) or "unexpectedly" in str(error):
        mend = "is this the AMQP port (5672), or one that needs amqps://? set AMQP_AGENTS_URL"
        return "the connection was closed before RabbitMQ answered", mend
    return _told(cause), "is RabbitMQ running? set AMQP_AGENTS_URL"


def _told(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    if isinstance(error, library.ConnectionClosed) and error.args:
        return str(error.args[-1])
    text = str(error.args[-1]) if error.args else ""
    return text or type(error).__name__


_KNOWN_NOISE = (
    "Cancelling cause reader exited abnormally",
    "Unexpected connection close from remote",
    "error when creating transport",
    "Consumer %r cancelled by the broker",
    "Closing channel %r",
    "Server connection %r was stuck",
    "Got frame for closed channel",
    "Delivery tag %r confirmed %r was ignored",
)
_WITH_PAYLOADS = ("Unhandled message %r returning", "message_id if None on returned message %r")


class _KnownNoise(logging.Filter):
    """Lets drops of a connection, which we report once ourselves, pass at DEBUG only.

    A message that came back late is not shown: payloads are never logged.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_WITH_PAYLOADS):
            record.msg, record.args = "a message came back after its publish had ended", ()
        if str(record.msg).startswith(_KNOWN_NOISE):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
            record.exc_info = record.exc_text = None
        return record.levelno >= logging.getLogger(record.name).getEffectiveLevel()


def quieten_library() -> None:
    """Report each lost connection once, in our words, instead of with several tracebacks."""
    noise = _KnownNoise()
    for name in ("aiormq.connection", "aiormq.channel"):
        logger = logging.getLogger(name)
        if not any(isinstance(known, _KnownNoise) for known in logger.filters):
            logger.addFilter(noise)
