"""What the client library raises, as errors of ours."""

import asyncio
import logging
import time

import pytest
from aiormq import exceptions as library
from yarl import URL

from amqp_agents.brokers.rabbitmq.faults import (
    ConnectionLost,
    answered,
    backoff_seconds,
    bounded,
    connect_failure,
    library_faults,
    quieten_library,
)

URL_WITH_PASSWORD = URL("amqp://ann:hush@rabbit:5672/orders")


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        library.ConnectionClosed(320, "CONNECTION_FORCED"),
        library.AMQPConnectionError("reset"),
        library.ChannelInvalidStateError("<Channel> closed"),
        library.ChannelClosed(None, None),
        library.InvalidFrameError("?"),
        RuntimeError("<Connection> closed"),
        ConnectionResetError(104, "reset"),
    ],
)
async def test_every_form_of_a_lost_connection_is_one_error(error: BaseException) -> None:
    with pytest.raises(ConnectionLost), library_faults():
        raise error


@pytest.mark.parametrize(
    "error",
    [
        library.ChannelNotFoundEntity("NOT_FOUND - no queue 'q'"),
        library.ChannelPreconditionFailed("PRECONDITION_FAILED"),
        library.DeliveryError(None, None),  # type: ignore[arg-type]
        RuntimeError("a mistake of ours"),
        TimeoutError(),
        ValueError("x"),
    ],
)
async def test_other_errors_pass_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, library_faults():
        raise error
    assert caught.value is error


async def test_a_real_cancellation_stays_one() -> None:
    async def wait() -> None:
        with library_faults():
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_time_limit_around_a_call_stays_a_time_limit() -> None:
    async def wait() -> None:
        async with asyncio.timeout(0.01):
            with library_faults():
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()


async def stubborn() -> None:
    """A call that does not end when it is cancelled, as the library's can."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0.5)


async def test_a_call_that_ignores_its_cancellation_is_left_behind() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await bounded(stubborn(), 0.01)
    assert time.monotonic() - began < 0.3


async def test_an_answer_that_does_not_come_means_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost, match=r"did not answer within 0\.01 s"):
        await answered(stubborn(), 0.01)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), "(connection refused)"),
        (library.ProbableAuthenticationError("ACCESS_REFUSED"), "refused the login of user 'ann'"),
        (library.InvalidFrameError("Expected ..."), "the vhost 'orders'"),
        (TimeoutError(), "(no answer in time)"),
        (library.IncompatibleProtocolError("x"), "is this the AMQP port"),
        (OSError(113, "No route to host"), "(No route to host)"),
    ],
)
def test_a_failed_connection_names_the_place_and_the_mend(error: BaseException, words: str) -> None:
    told = str(connect_failure(error, URL_WITH_PASSWORD, vhost="orders"))
    assert "rabbit:5672" in told
    assert words in told
    assert "AMQP_AGENTS_URL" in told
    assert "hush" not in told


def test_backoff_doubles_up_to_its_cap_with_jitter() -> None:
    for failures, limit in ((0, 0.1), (1, 0.2), (3, 0.8), (100, 5.0)):
        pauses = {backoff_seconds(failures, 0.1, 5.0) for _ in range(50)}
        assert all(limit / 2 <= pause <= limit for pause in pauses)
        assert len(pauses) > 1


def test_only_known_noise_of_the_library_is_turned_down(caplog: pytest.LogCaptureFixture) -> None:
    quieten_library()
    quieten_library()
    logger = logging.getLogger("aiormq.connection")
    with caplog.at_level(logging.INFO):
        logger.warning("Cancelling cause reader exited abnormally", exc_info=ValueError("x"))
        logger.error('Unexpected connection close from remote "%s"', "amqp://")
        logger.warning("something nobody has seen before")
    assert caplog.messages == ["something nobody has seen before"]
    with caplog.at_level(logging.DEBUG):
        logger.warning("Cancelling cause reader exited abnormally")
    assert caplog.records[-1].levelno == logging.DEBUG
    assert len(logger.filters) == 1


def test_a_message_that_came_back_late_is_not_shown_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quieten_library()
    secret = b'{"card": "4111"}'
    logging.getLogger("aiormq.channel").error("Unhandled message %r returning", secret)
    assert "4111" not in caplog.text
    assert "came back after its publish had ended" in caplog.text
