"""The channels of one connection that messages are published over."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiormq import exceptions as library
from aiormq.abc import AbstractChannel

from amqp_agents.brokers.rabbitmq.session import Session

CHANNELS = 4
_PREDECLARED = frozenset(
    ("", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic", "amq.rabbitmq.trace")
)


class PublishChannel:
    """A channel in confirm mode, with the exchanges of the messages under way on it."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        self._under_way: Counter[str] = Counter()
        self._at_close: Counter[str] | None = None

    @contextmanager
    def message_to(self, exchange: str) -> Iterator[None]:
        """Count a message as under way while the block runs."""
        self._under_way[exchange] += 1
        try:
            yield
        except library.ChannelClosed:
            if self._at_close is None:
                self._at_close = Counter(self._under_way)
            raise
        finally:
            self._under_way[exchange] -= 1

    def was_alone_to(self, exchange: str) -> bool:
        """Whether one message only was under way to the exchange when the channel closed."""
        return self._at_close is not None and self._at_close[exchange] == 1


class ChannelSet:
    """A few channels used in turn; all are opened at once, and replaced when they break."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._open: list[PublishChannel] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()
        self._exchanges: dict[str, asyncio.Task[bool]] = {}

    async def next(self) -> PublishChannel:
        """Return an open channel. Raises: ConnectionLost."""
        while not (usable := self._usable()):
            ended, _ = await asyncio.wait(self._opening, return_when=asyncio.FIRST_COMPLETED)
            for opening in ended:
                opening.result()
        return usable[next(self._turn) % len(usable)]

    def _usable(self) -> list[PublishChannel]:
        """Return the open channels, and begin to open those that are missing."""
        self._open = [each for each in self._open if not each.channel.is_closed]
        while len(self._open) + len(self._opening) < CHANNELS:
            opening = asyncio.create_task(self._add_channel())
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            opening.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return self._open

    async def _add_channel(self) -> None:
        channel = await self.session.open_channel(confirms=True)
        self._open.append(PublishChannel(channel))  # the list may be another one by now

    async def has_exchange(self, name: str) -> bool:
        """Ask once per connection whether the exchange exists.

        A publish to a missing exchange closes its channel, and leaves every other message
        under way on it without an answer; so the question is asked on a channel of its own.
        """
        if name in _PREDECLARED:
            return True
        question = self._exchanges.get(name)
        if question is None:
            question = self._exchanges[name] = asyncio.create_task(self._ask(name))
            question.add_done_callback(lambda ended: self._keep_yes(name, ended))
        return question.result() if question.done() else await asyncio.shield(question)

    def forget_exchange(self, name: str) -> None:
        """Ask again at the next publish."""
        self._exchanges.pop(name, None)

    def _keep_yes(self, name: str, question: "asyncio.Task[bool]") -> None:
        yes = not question.cancelled() and question.exception() is None and question.result()
        if not yes and self._exchanges.get(name) is question:
            del self._exchanges[name]

    async def _ask(self, name: str) -> bool:
        try:
            await self.session.call(lambda channel: channel.exchange_declare(name, passive=True))
        except library.ChannelNotFoundEntity:
            return False
        except library.ChannelAccessRefused:
            return True  # it exists; the publish itself says whether it may be written to
        return True
