"""Every fault of the proxy, seen from both ends, against a broker that echoes."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.nodes.proxy import Proxy, through

LIMIT_SECONDS = 5.0
NOTHING_SECONDS = 0.15

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """Echoes what it gets and knows which of its connections have ended."""

    def __init__(self) -> None:
        self.received = b""
        self.open = 0
        self.changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._note(1)
        try:
            while data := await reader.read(65_536):
                self.received += data
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            await self._note(-1)

    async def _note(self, change: int) -> None:
        async with self.changed:
            self.open += change
            self.changed.notify_all()

    async def until_open(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_SECONDS), self.changed:
            await self.changed.wait_for(lambda: self.open == count)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    broker = Echo()
    async with await asyncio.start_server(broker.serve, "127.0.0.1", 0) as server:
        vars(broker)["port"] = server.sockets[0].getsockname()[1]
        yield broker
        await broker.until_open(0)


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    async with Proxy(vars(echo)["port"]) as running:
        yield running


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    yield reader, writer
    writer.close()


async def says(client: Client, data: bytes) -> bytes:
    reader, writer = client
    writer.write(data)
    async with asyncio.timeout(LIMIT_SECONDS):
        return await reader.readexactly(len(data))


async def hears_nothing(client: Client) -> bool:
    try:
        await asyncio.wait_for(client[0].read(1), NOTHING_SECONDS)
    except TimeoutError:
        return True
    return False


async def end_of(client: Client) -> bytes | type[Exception]:
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await client[0].read(1)
    except ConnectionResetError as error:
        return type(error)


async def test_a_healthy_proxy_passes_both_directions_and_counts(
    proxy: Proxy, client: Client
) -> None:
    assert await says(client, b"hello") == b"hello"
    counters = proxy.counters
    assert (counters.connections, counters.bytes_up, counters.bytes_down) == (1, 5, 5)
    assert counters.faults == {}


async def test_a_client_that_leaves_takes_its_broker_connection_along(
    proxy: Proxy, client: Client, echo: Echo
) -> None:
    await says(client, b"x")
    client[1].close()
    await echo.until_open(0)


async def test_cut_ends_both_sides_in_good_order(proxy: Proxy, client: Client, echo: Echo) -> None:
    await says(client, b"x")
    proxy.cut()
    assert await end_of(client) == b""
    await echo.until_open(0)
    assert proxy.counters.faults == {"cut": 1}


async def test_reset_is_seen_as_a_reset(proxy: Proxy, client: Client, echo: Echo) -> None:
    await says(client, b"x")
    proxy.reset()
    assert await end_of(client) is ConnectionResetError
    await echo.until_open(0)


async def test_a_black_hole_swallows_old_and_new_connections_and_keeps_them_open(
    proxy: Proxy, client: Client, echo: Echo
) -> None:
    await says(client, b"x")
    proxy.black_hole()
    new = await asyncio.open_connection("127.0.0.1", proxy.port)
    for each in (client, new):
        each[1].write(b"lost")
        assert await hears_nothing(each)
    assert (echo.received, echo.open) == (b"x", 1)
    assert proxy.counters.bytes_swallowed == 8
    new[1].close()


async def test_after_a_black_hole_what_lost_bytes_is_reset_and_new_connections_work(
    proxy: Proxy, client: Client
) -> None:
    await says(client, b"x")
    proxy.black_hole()
    proxy.heal()
    assert await end_of(client) is ConnectionResetError
    new = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await says(new, b"again") == b"again"
    new[1].close()


async def test_stalled_bytes_arrive_after_the_heal(
    proxy: Proxy, client: Client, echo: Echo
) -> None:
    await says(client, b"x")
    proxy.stall()
    client[1].write(b"late")
    assert await hears_nothing(client)
    proxy.heal()
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await client[0].readexactly(4) == b"late"
    assert echo.received == b"xlate"


async def test_refuse_turns_new_connections_away_and_leaves_old_ones(
    proxy: Proxy, client: Client
) -> None:
    await says(client, b"x")
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await says(client, b"still") == b"still"


async def test_a_refusing_proxy_heals_on_the_same_port(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.heal()
    new = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await says(new, b"x") == b"x"
    new[1].close()


async def test_half_open_ends_the_client_and_leaves_the_broker_believing(
    proxy: Proxy, client: Client, echo: Echo
) -> None:
    await says(client, b"x")
    proxy.half_open()
    assert await end_of(client) == b""
    assert echo.open == 1
    proxy.heal()
    await echo.until_open(0)


async def test_slow_holds_to_its_rate_until_the_heal(proxy: Proxy, client: Client) -> None:
    proxy.slow(2_000)
    before = time.monotonic()
    await says(client, b"x" * 1_000)
    assert time.monotonic() - before > 0.4
    proxy.slow(1)
    client[1].write(b"x" * 50_000)
    assert len(await client[0].read(65_536)) == 1
    proxy.heal()
    async with asyncio.timeout(LIMIT_SECONDS):
        await client[0].readexactly(49_999)


async def test_injected_bytes_reach_the_client_alone(
    proxy: Proxy, client: Client, echo: Echo
) -> None:
    await says(client, b"x")
    proxy.inject(b"blocked")
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await client[0].readexactly(7) == b"blocked"
    assert echo.received == b"x"


async def test_a_dead_broker_is_seen_as_a_reset(proxy: Proxy) -> None:
    async with Proxy(proxy.port) as before_it:
        proxy.refuse()
        lost = await asyncio.open_connection("127.0.0.1", before_it.port)
        assert await end_of(lost) is ConnectionResetError
        lost[1].close()


def test_a_url_through_the_proxy_keeps_user_vhost_and_options() -> None:
    url = through("amqps://me:p%2Fw@rabbit.example:5671/a%2Fb?heartbeat=3", 7000)
    assert url == "amqps://me:p%2Fw@127.0.0.1:7000/a%2Fb?heartbeat=3"
    assert through("amqp://rabbit/", 7000) == "amqp://127.0.0.1:7000/"
