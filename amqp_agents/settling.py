"""Carrying out an outcome: every effect confirmed, THEN the ack; nothing is acked away."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from amqp_agents import parking
from amqp_agents.agent import Agent
from amqp_agents.brokers.base import Lease, Publishing
from amqp_agents.errors import (
    BrokerError,
    ConfigurationError,
    HandlingError,
    ProtocolError,
    UnroutableMessageError,
)
from amqp_agents.observability import Telemetry
from amqp_agents.outcome import Ack, DeadLetter, Outcome, Release, Retry
from amqp_agents.pipeline import Delivery
from amqp_agents.protocol import AgentMessage
from amqp_agents.protocol.error_payload import error_payload_of
from amqp_agents.publisher import DEPTH_HEADER, AsyncPublisher

MAX_PAUSE_SECONDS = 60.0
LOST = Release("its connection was lost before it could be settled")


class Settling:
    """Settles the deliveries of one agent."""

    def __init__(
        self,
        agent: Agent,
        publisher: AsyncPublisher,
        *,
        telemetry: Telemetry,
        reply_seconds: float,
        stack_traces: bool = False,
    ) -> None:
        self._agent, self._publisher, self._telemetry = agent, publisher, telemetry
        self._reply_seconds, self._stack_traces = reply_seconds, stack_traces

    async def settle(self, lease: Lease, delivery: Delivery, outcome: Outcome) -> Outcome:
        """Carry out the outcome, then settle; return the outcome that was really carried out.

        An effect that cannot be confirmed keeps the delivery: it is tried again, slower each
        time, until it succeeds or the connection that would carry the ack is gone.
        """
        if isinstance(outcome, Ack):
            outcome = await self._finish(lease, delivery, outcome)
        match outcome:
            case Release():
                await lease.release()
            case Ack():
                await self._settled(delivery, lease.ack())
            case Retry() | DeadLetter():
                return await self._park(lease, delivery, outcome)
        return outcome

    async def _finish(self, lease: Lease, delivery: Delivery, outcome: Ack) -> Outcome:
        """Send the messages to others, then the answer to the caller."""
        depth = delivery.properties.headers.get(DEPTH_HEADER)
        depth = depth if type(depth) is int and depth > 0 else 0
        for message in outcome.messages:
            sending = partial(self._publisher.publish, message, depth=depth + 1)
            try:
                # The handler's effects are done: it is not run again because a message waits.
                if not await self._insisted(
                    lease, delivery, sending, final=(UnroutableMessageError,)
                ):
                    return LOST
            except (ProtocolError, HandlingError, ConfigurationError, UnroutableMessageError) as no:
                return DeadLetter(no)
        if outcome.reply is None:
            return outcome
        async with self._done_already(lease.ack, delivery):
            return await self._answer(delivery, outcome.reply) or outcome

    async def _answer(self, delivery: Delivery, reply: AgentMessage) -> DeadLetter | None:
        """Answer the waiting caller; an answer the wire cannot carry is a dead letter."""
        to = reply_address(delivery)
        if to is None:
            return None
        left = delivery.life_seconds(self._publisher.clock.time())
        limit = self._reply_seconds if left is None else min(self._reply_seconds, max(1.0, left))
        try:
            await self._publisher.reply(reply, to=to, timeout_seconds=limit)
        except ProtocolError as error:
            return DeadLetter(error)
        except (BrokerError, HandlingError) as error:
            # The caller left or cannot be reached in time; the work is done all the same.
            self._telemetry.reply_undelivered(self._agent.name, reply, to, error)
        return None

    async def _park(self, lease: Lease, delivery: Delivery, outcome: Retry | DeadLetter) -> Outcome:
        """Store the copy, then settle the original."""
        settle = lease.ack
        try:
            if not await self._insisted(lease, delivery, partial(self._store, delivery, outcome)):
                return LOST
        except ProtocolError as error:
            # No copy can carry it (a body over our limit): the original goes to the dead-letter
            # queue by the broker's hand, without its reason.
            self._telemetry.unsettled(self._agent.name, delivery, error)
            outcome, settle = DeadLetter(outcome.error), lease.reject
        if isinstance(outcome, DeadLetter):
            async with self._done_already(settle, delivery):
                await self._tell_caller(delivery, outcome)
        await self._settled(delivery, settle())
        return outcome

    @asynccontextmanager
    async def _done_already(
        self, settle: Callable[[], Awaitable[bool]], delivery: Delivery
    ) -> AsyncIterator[None]:
        """Cut off while the caller is told, settle all the same: the work is not done again."""
        try:
            yield
        except asyncio.CancelledError:
            await self._settled(delivery, settle())
            raise

    async def _insisted(
        self,
        lease: Lease,
        delivery: Delivery,
        sending: Callable[[], Awaitable[None]],
        *,
        final: tuple[type[BrokerError], ...] = (),
    ) -> bool:
        """Send until it is confirmed; False if the delivery's connection was lost first."""
        pause = 1.0
        while not lease.lost:
            try:
                await sending()
            except final:
                raise
            except BrokerError as error:
                self._telemetry.unsettled(self._agent.name, delivery, error)
                await self._publisher.clock.sleep(pause)
                pause = min(MAX_PAUSE_SECONDS, pause * 2)
            else:
                return True
        self._telemetry.settlement_lost(self._agent.name, delivery)
        return False

    async def _settled(self, delivery: Delivery, settling: Awaitable[bool]) -> None:
        if not await settling:
            # Lost with its connection: the broker delivers the message again.
            self._telemetry.settlement_lost(self._agent.name, delivery)

    async def _store(self, delivery: Delivery, outcome: Retry | DeadLetter) -> None:
        await self._publisher.confirmed(self._copy(delivery, outcome))

    def _copy(self, delivery: Delivery, outcome: Retry | DeadLetter) -> Publishing:
        agent, now = self._agent.name, self._publisher.clock.time()
        if isinstance(outcome, DeadLetter):
            return parking.dead_letter(
                delivery, agent=agent, error=outcome.error, now=now, stack=self._stack_traces
            )
        return parking.retry_copy(
            delivery,
            agent=agent,
            delay_seconds=outcome.delay_seconds,
            counted=outcome.counted,
            now=now,
        )

    async def _tell_caller(self, delivery: Delivery, outcome: DeadLetter) -> None:
        message = delivery.message
        if message is None or not message.requires_response:
            return
        stack = None
        if self._stack_traces:
            stack = "".join(traceback.format_exception(outcome.error))
        payload = error_payload_of(outcome.error, failed_agent=self._agent.name, stack_trace=stack)
        error = message.reply(payload.model_dump(mode="json"), sender=self._agent.ref, error=True)
        unsaid = await self._answer(delivery, error)
        if unsaid is not None:
            to = reply_address(delivery) or ""
            self._telemetry.reply_undelivered(self._agent.name, error, to, unsaid.error)


def reply_address(delivery: Delivery) -> str | None:
    """Return where the caller waits: the envelope's word, or a token only the broker knows."""
    given = delivery.properties.reply_to
    if given is not None and given.startswith("amq.rabbitmq.reply-to."):
        return given
    return None if delivery.message is None else delivery.message.reply_to
