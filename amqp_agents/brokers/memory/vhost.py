"""Everything that lives on the broker's side: exchanges, queues, and the ways between them."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from amqp_agents.brokers.memory.dead_letters import DeadLetter, DeadLetters
from amqp_agents.brokers.memory.exchanges import Exchanges
from amqp_agents.brokers.memory.messages import Message, Reason, after_death, is_cycle
from amqp_agents.brokers.memory.queues import Consumer, MemoryQueue
from amqp_agents.brokers.memory.settings import settings_of
from amqp_agents.clock import Clock
from amqp_agents.errors import TopologyMissingError
from amqp_agents.topology.model import Binding, Exchange, Policy, Queue, Topology, Version
from amqp_agents.topology.names import DIRECT_REPLY_TO
from amqp_agents.topology.observed import observed_of
from amqp_agents.topology.plan import Change, ChangeKind, plan

VERSION: Version = (4, 3)

OnReply: TypeAlias = Callable[[Message], None]


class Vhost:
    """What brokers that are given the same one have in common, as clients of one server."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.queues: dict[str, MemoryQueue] = {}
        self.direct_replies: dict[str, OnReply] = {}  # by reply address
        self._policies: dict[str, Policy] = {}
        self.exchanges = Exchanges(self._policies, VERSION)
        self._dead_letters: dict[str, DeadLetters] = {}
        # They outlive the queue: a consumer waits for a queue that is not there yet.
        self._consumers: defaultdict[str, deque[Consumer]] = defaultdict(deque)

    def publish(self, message: Message) -> bool | None:
        """Store a copy in every queue the message is routed to.

        Answers None if there is no such queue, False if one of them is full and rejects:
        the others keep their copy even then.

        Raises: KeyError for an exchange that does not exist.
        """
        if not message.exchange and message.routing_key.startswith(f"{DIRECT_REPLY_TO}."):
            return self._reply_directly(message)
        queues = self._route(message)
        answers = [self.queues[name].offer(replace(message)) for name in queues]
        return all(answers) if answers else None

    def subscribe(self, queue: str, consumer: Consumer) -> None:
        """Hand the consumer what the queue has, now or once it exists."""
        self._consumers[queue].append(consumer)
        self._note_use(queue)

    def unsubscribe(self, queue: str, consumer: Consumer) -> None:
        """Hand the consumer nothing more."""
        if consumer in self._consumers[queue]:
            self._consumers[queue].remove(consumer)
            self._note_use(queue)

    def plan(self, topology: Topology) -> Sequence[Change]:
        """Return what is missing of `topology`, or is there in another shape."""
        actual = Topology(
            exchanges=tuple(self.exchanges.declared.values()),
            queues=tuple(queue.declared for queue in self.queues.values()),
            bindings=tuple(self.exchanges.bindings),
            policies=tuple(self._policies.values()),
        )
        return plan(topology, observed_of(actual, VERSION), VERSION)

    def declare(self, change: Change) -> None:
        """Do what a plan says; a conflict is left as it is."""
        subject = change.subject
        if change.kind is ChangeKind.CONFLICT:
            return
        if isinstance(subject, Exchange):
            self.exchanges.declared[subject.name] = subject
        elif isinstance(subject, Policy):
            self._policies[subject.name] = subject
            for queue in self.queues.values():
                queue.configure(settings_of(queue.declared, self._policies.values(), VERSION))
        elif isinstance(subject, Queue):
            self._declare_queue(subject)
        elif isinstance(subject, Binding):
            self._bind(subject)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages and bindings; its consumers wait for another."""
        queue = self.queues.pop(name, None)
        if queue is not None:
            queue.close()
            self._dead_letters.pop(name).close()
            self.exchanges.forget_queue(name)
            for consumer in self._consumers[name]:
                consumer.found(exists=False)

    def _declare_queue(self, declared: Queue) -> None:
        name = declared.name
        self._dead_letters[name] = DeadLetters(self.clock, partial(self._forward, name))
        self.queues[name] = MemoryQueue(
            declared,
            settings_of(declared, self._policies.values(), VERSION),
            clock=self.clock,
            consumers=self._consumers[name],
            bury=partial(self._bury, name),
            unused=partial(self.delete_queue, name),
        )
        self._note_use(name)

    def _bind(self, binding: Binding) -> None:
        known = self.exchanges if binding.to_exchange else self.queues
        missing = [
            f"{kind} {name}"
            for kind, name, there in (
                ("exchange", binding.source, binding.source in self.exchanges),
                ("destination", binding.destination, binding.destination in known),
            )
            if not there
        ]
        if missing:
            raise TopologyMissingError(missing, remedy="declare both ends of a binding")
        self.exchanges.bind(binding)

    def _note_use(self, name: str) -> None:
        queue = self.queues.get(name)
        if queue is not None:
            queue.touch()
            queue.wake()
        for consumer in self._consumers[name]:
            consumer.found(exists=queue is not None)

    def _reply_directly(self, message: Message) -> bool:
        # Whether the caller is still there or not: RabbitMQ returns no direct reply.
        on_reply = self.direct_replies.get(message.routing_key)
        if on_reply is not None:
            on_reply(message)
        return True

    def _route(self, message: Message) -> list[str]:
        if not message.exchange:
            return [message.routing_key] if message.routing_key in self.queues else []
        if message.exchange not in self.exchanges:
            raise KeyError(message.exchange)
        headers = message.properties.headers
        return self.exchanges.route(message.exchange, message.routing_key, headers)

    def _bury(self, name: str, message: Message, reason: Reason) -> None:
        settings = self.queues[name].settings
        if settings.dead_letter_exchange is not None:
            self._dead_letters[name].add(message, reason, at_least_once=settings.at_least_once)

    def _forward(self, name: str, letter: DeadLetter) -> bool:
        settings = self.queues[name].settings
        key = settings.dead_letter_key
        copy = after_death(
            letter.message,
            name,
            letter.reason,
            exchange=settings.dead_letter_exchange or "",
            routing_key=letter.message.routing_key if key is None else key,
            now=self.clock.time(),
        )
        try:
            targets = self._route(copy)
        except KeyError:
            return False
        if letter.reason is not Reason.REJECTED:
            targets = [target for target in targets if not is_cycle(copy.deaths, target)]
        for target in targets:
            if target not in letter.taken_by and self.queues[target].offer(replace(copy)):
                letter.taken_by.add(target)
        return bool(targets) and letter.taken_by.issuperset(targets)
