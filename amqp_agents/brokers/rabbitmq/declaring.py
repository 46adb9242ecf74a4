"""Plan and apply of a topology: by the management API where it answers, else by AMQP alone."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from aiormq import exceptions as library

from amqp_agents.brokers.management import REFUSED, Management, ManagementError
from amqp_agents.brokers.rabbitmq.crew import Crew
from amqp_agents.brokers.rabbitmq.faults import reply_text
from amqp_agents.brokers.rabbitmq.observing import (
    conflicts_by_amqp,
    declare,
    observe_by_amqp,
    observe_by_management,
)
from amqp_agents.brokers.rabbitmq.session import Session
from amqp_agents.errors import BrokerConnectionError, BrokerError, TopologyConflictError
from amqp_agents.observability import Event, log_event
from amqp_agents.topology.layout import policies_as_arguments
from amqp_agents.topology.model import Binding, Exchange, Policy, Queue, Topology
from amqp_agents.topology.plan import CONFLICT_REMEDY, Change, ChangeKind, ObjectKind, plan
from amqp_agents.topology.validate import validate

log = logging.getLogger(__name__)

VERIFY_SECONDS, VERIFY_PAUSE_SECONDS = 10.0, 0.2
_WRITES_POLICIES = frozenset({"policymaker", "administrator"})

OnChange = Callable[[Change], None]


class Declarer:
    """Brings one vhost to a topology.

    `policies_by_management` tells how: False means that every policy became arguments,
    which nobody can change on a live queue; None means that nothing was planned yet.
    """

    def __init__(self, session: Session, management: Management | None) -> None:
        self._session, self._crew = session, Crew(session)
        self._management = management
        self.policies_by_management: bool | None = None

    async def plan(self, topology: Topology) -> tuple[Change, ...]:
        """Return what differs; changes nothing."""
        if self.policies_by_management is None:
            await self._choose_way()
        version = self._session.version[:2]
        desired = validate(topology, version)
        if not self.policies_by_management:
            desired = policies_as_arguments(topology, version)
        if self._management is not None:
            return plan(desired, await observe_by_management(self._management), version)
        try:
            actual = await observe_by_amqp(self._crew, desired)
            conflicts = await conflicts_by_amqp(self._crew, desired, topology, actual)
        except library.AMQPChannelError as error:
            raise _refused(error) from error
        return (*plan(desired, actual, version), *conflicts)

    async def apply(self, topology: Topology, on_change: OnChange | None) -> tuple[Change, ...]:
        """Create and update what differs, then verify by planning again.

        Raises: TopologyConflictError, before anything was changed; BrokerError for what is
            still missing afterwards.
        """
        changes = await self.plan(topology)
        _refuse_conflicts(changes)
        report = on_change or (lambda _: None)
        for change in changes:
            if isinstance(change.subject, Policy):
                await self._put_policy(change.subject)
                report(change)
        await self._declare(changes, ObjectKind.EXCHANGE, report, workers=1)
        await self._declare(changes, ObjectKind.QUEUE, report)
        await self._declare(changes, ObjectKind.BINDING, report)
        await self._bind_unseen(topology)
        await self._verify(topology)
        return changes

    async def _choose_way(self) -> None:
        self.policies_by_management = False
        if self._management is None:
            return
        try:
            ours = await self._same_broker(self._management)
            tags = _tags((await self._management.whoami()).get("tags"))
        except (BrokerConnectionError, ManagementError) as error:
            if isinstance(error, ManagementError) and error.status not in REFUSED:
                raise
            log_event(log, Event.MANAGEMENT_UNAVAILABLE, reason=error)
            ours, tags = False, frozenset()
        if not ours:
            self._management = None
        self.policies_by_management = ours and bool(tags & _WRITES_POLICIES)
        if not self.policies_by_management:
            log_event(
                log,
                Event.POLICIES_AS_ARGUMENTS,
                reason="without a management API that this user may write policies to, limits "
                "become arguments and cannot be changed on live queues",
            )

    async def _same_broker(self, management: Management) -> bool:
        overview = await management.overview()
        theirs = overview.get("cluster_name")
        version = str(overview.get("rabbitmq_version", "")).split("-")[0]
        if theirs == self._session.cluster_name and version == self._session.version_text:
            return True
        log_event(
            log,
            Event.MANAGEMENT_UNAVAILABLE,
            reason=f"{management.url} belongs to {theirs} ({version}), AMQP to "
            f"{self._session.cluster_name} ({self._session.version_text}); "
            "set AMQP_AGENTS_MANAGEMENT_URL",
        )
        return False

    async def _put_policy(self, policy: Policy) -> None:
        if self._management is None:
            return
        await self._management.put_policy(
            policy.name,
            {
                "pattern": policy.pattern,
                "definition": dict(policy.definition),
                "priority": policy.priority,
                "apply-to": policy.apply_to,
            },
        )

    async def _declare(
        self, changes: Sequence[Change], kind: ObjectKind, report: OnChange, *, workers: int = 8
    ) -> None:
        ours = [change for change in changes if change.object_kind is kind]
        subjects = [
            change.subject
            for change in ours
            if isinstance(change.subject, Exchange | Queue | Binding)
        ]
        try:
            await self._crew.each(subjects, declare, workers=workers)
        except library.AMQPChannelError as error:
            raise _refused(error) from error
        for change in ours:
            report(change)

    async def _bind_unseen(self, topology: Topology) -> None:
        """Make every binding where none can be seen; one that exists stays as it is."""
        if self._management is not None:
            return
        try:
            actual = replace(await observe_by_amqp(self._crew, topology), bindings=())
        except library.AMQPChannelError as error:
            raise _refused(error) from error
        bindings = plan(replace(topology, exchanges=(), queues=()), actual, (0, 0))
        await self._declare(bindings, ObjectKind.BINDING, lambda _: None)

    async def _verify(self, topology: Topology) -> None:
        """Plan again until nothing is left: listings may lag behind for a moment."""
        left: tuple[Change, ...] = ()
        for _ in range(round(VERIFY_SECONDS / VERIFY_PAUSE_SECONDS)):
            left = await self.plan(topology)
            if not left:
                return
            await asyncio.sleep(VERIFY_PAUSE_SECONDS)
        _refuse_conflicts(left)
        raise BrokerError(f"not in effect after the apply: {'; '.join(map(str, left))}")


def _refuse_conflicts(changes: Sequence[Change]) -> None:
    conflicts = [str(change) for change in changes if change.kind is ChangeKind.CONFLICT]
    if conflicts:
        raise TopologyConflictError(conflicts, remedy=CONFLICT_REMEDY)


def _refused(error: library.AMQPChannelError) -> BrokerError:
    if isinstance(error, library.ChannelPreconditionFailed):
        return BrokerError(f"somebody declared the same objects meanwhile: {reply_text(error)}")
    if isinstance(error, library.ChannelAccessRefused):
        return BrokerError(
            f"the user may not see or declare the topology: {reply_text(error)}; grant it "
            "(rabbitmqctl set_permissions -p VHOST USER '.*' '.*' '.*'), or apply as a user who may"
        )
    return BrokerError(f"RabbitMQ refuses the topology: {reply_text(error)}")


def _tags(told: object) -> frozenset[str]:
    """Return the tags of a user: a list, or before 3.9 a text with commas."""
    words = told.split(",") if isinstance(told, str) else told
    return frozenset(map(str, words)) if isinstance(words, list) else frozenset()
