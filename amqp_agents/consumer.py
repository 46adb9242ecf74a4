"""Receiving: from a queue through the pipeline to a settled delivery; drain."""

import asyncio
import time
from dataclasses import replace

from amqp_agents.agent import Agent
from amqp_agents.brokers.base import Broker, Lease, Subscription
from amqp_agents.errors import AgentError, ConfigurationError, DependencyFailedError
from amqp_agents.observability import Telemetry
from amqp_agents.outcome import Outcome, Release, outcome_of
from amqp_agents.pipeline import Delivery, Handler
from amqp_agents.protocol import WireLimits, decode
from amqp_agents.protocol.error_payload import text_of
from amqp_agents.settling import LOST, Settling
from amqp_agents.topology.names import inbox

DRAINING = Release("the worker is stopping")
SELF_CANCEL_PAUSE_SECONDS = 1.0


class Consumer:
    """Feeds one agent from its inbox, at most `agent.concurrency` handlers at once.

    Handlers run in tasks of ours: a lost connection never cancels one, it only makes its ack
    be lost, and the broker delivers the message again.
    """

    def __init__(
        self,
        agent: Agent,
        handler: Handler,
        *,
        broker: Broker,
        settling: Settling,
        telemetry: Telemetry,
        limits: WireLimits,
    ) -> None:
        self.agent, self._handler = agent, handler
        self._broker, self._settling, self._telemetry = broker, settling, telemetry
        self._limits = limits
        self._slots = asyncio.Semaphore(agent.concurrency)
        self._handlings: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None
        self._draining = False

    async def start(self, *, timeout_seconds: float) -> None:
        """Consume; return once deliveries can flow.

        Raises: BrokerError with the reason if they cannot within the limit.
        """
        self._subscription = await self._broker.consume(
            inbox(self.agent.name), self._on_delivery, prefetch=self.agent.concurrency
        )
        await self._subscription.ready(timeout_seconds)

    async def drain(self, grace_seconds: float) -> int:
        """Stop consuming, let handlers finish, hand the rest back; return how many were cut off.

        Units:  real seconds, also on a manual clock.
        """
        self._draining = True
        if self._subscription is not None:
            await self._subscription.cancel()
        if self._handlings:
            await asyncio.wait(set(self._handlings), timeout=grace_seconds)
        unfinished = set(self._handlings)
        for handling in unfinished:
            handling.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=5.0)
        if self._subscription is not None:
            await self._subscription.close()
        return len(unfinished)

    def _on_delivery(self, lease: Lease) -> None:
        handling = asyncio.create_task(self._handle(lease), name=f"handling-{self.agent.name}")
        self._handlings.add(handling)
        handling.add_done_callback(self._ended)

    def _ended(self, handling: asyncio.Task[None]) -> None:
        self._handlings.discard(handling)
        defect = None if handling.cancelled() else handling.exception()
        if defect is not None:
            told = {"message": "a delivery could not be settled", "exception": defect}
            handling.get_loop().call_exception_handler(told)

    async def _handle(self, lease: Lease) -> None:
        delivery, defective = lease.delivery, True
        try:
            async with self._slots:
                started = time.monotonic()
                delivery, outcome = await self._outcome(lease)
                if delivery.unreadable:
                    self._telemetry.unreadable(self.agent.name, delivery)
                done = await self._settling.settle(lease, delivery, outcome)
            defective = False
        except (asyncio.CancelledError, GeneratorExit) as cut_off:
            defective = False
            if isinstance(cut_off, asyncio.CancelledError):
                await self._hand_back(lease)
                self._telemetry.handled(self.agent.name, delivery, DRAINING, 0.0)
            raise
        finally:
            if defective:  # our own code failed: the queue's own dead-lettering keeps the message
                await lease.reject()
        self._telemetry.handled(self.agent.name, delivery, done, time.monotonic() - started)

    async def _hand_back(self, lease: Lease) -> None:
        """Return a message unharmed: its handler was cut off at the end of the grace period."""
        try:
            if not self._draining:  # it cancelled itself, and would again: not without a pause
                await asyncio.sleep(SELF_CANCEL_PAUSE_SECONDS)
        finally:
            await lease.release()

    async def _outcome(self, lease: Lease) -> tuple[Delivery, Outcome]:
        delivery = lease.delivery
        if self._draining or lease.lost:
            # Lost while it waited for a slot: it comes again, and is handled then.
            return delivery, LOST if lease.lost else DRAINING
        running = self._telemetry.metrics.handlings.labels(self.agent.name)
        running.inc()
        task = asyncio.current_task()
        try:
            delivery = self._read(delivery)
            return delivery, _checked(await self._handler(delivery))
        except GeneratorExit as ended:
            if not _runs(task):  # the loop is gone, and what never finished is closed
                raise
            return delivery, self._judged(_failed(ended), delivery)
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            return delivery, self._judged(
                DependencyFailedError("the handler was cancelled from inside"), delivery
            )
        except Exception as error:
            return delivery, self._judged(error, delivery)
        except BaseException as error:  # sys.exit() in a handler must not end the worker
            return delivery, self._judged(_failed(error), delivery)
        finally:
            running.dec()

    def _read(self, delivery: Delivery) -> Delivery:
        try:
            message = decode(delivery.body, delivery.properties, limits=self._limits)
        except AgentError:
            if self.agent.raw_handler() is not None:
                return delivery
            raise
        return replace(delivery, message=message)

    def _judged(self, error: Exception, delivery: Delivery) -> Outcome:
        return outcome_of(
            error,
            attempt=delivery.attempt,
            policy=self.agent.retry,
            life_seconds=delivery.life_seconds(self._broker.clock.time()),
        )


def _runs(task: "asyncio.Task[object] | None") -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False


def _failed(error: BaseException) -> DependencyFailedError:
    failed = DependencyFailedError(f"the handler raised {type(error).__name__}: {text_of(error)}")
    failed.__cause__ = error
    return failed


def _checked(outcome: object) -> Outcome:
    if not isinstance(outcome, Outcome):
        raise ConfigurationError(
            f"a middleware returned {type(outcome).__name__}, not an outcome; "
            "end it with 'return await handler(delivery)'"
        )
    return outcome
