"""Which queues an exchange passes a message to."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from amqp_agents.topology.model import Binding, Exchange, ExchangeKind, Policy, Version
from amqp_agents.topology.names import topic_matches
from amqp_agents.topology.policies import ALTERNATE, effective_policy

_Match = Callable[[Binding, str, Mapping[str, Any]], bool]


class Exchanges:
    """The exchanges of one vhost with their bindings; `policies` may give them alternates."""

    def __init__(self, policies: Mapping[str, Policy], version: Version) -> None:
        self.declared: dict[str, Exchange] = {}
        self._policies, self._version = policies, version
        self._bindings: dict[str, list[Binding]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.declared

    @property
    def bindings(self) -> Iterable[Binding]:
        """Every binding, in no particular order."""
        return [binding for bound in self._bindings.values() for binding in bound]

    def bind(self, binding: Binding) -> None:
        """Add a binding; one that exists is not doubled."""
        bound = self._bindings.setdefault(binding.source, [])
        if binding not in bound:
            bound.append(binding)

    def forget_queue(self, queue: str) -> None:
        """Drop every binding of a queue that is gone."""
        for source, bound in self._bindings.items():
            self._bindings[source] = [
                binding for binding in bound if binding.to_exchange or binding.destination != queue
            ]

    def route(self, name: str, routing_key: str, headers: Mapping[str, Any]) -> list[str]:
        """Return the queues that take the message, each once however many ways lead there.

        An alternate exchange is asked only where no binding matched at all.
        """
        queues: dict[str, None] = {}
        seen, ahead = {name}, [name]
        while ahead:
            exchange = self.declared.get(ahead.pop())
            if exchange is None:  # an alternate that nobody declared
                continue
            matched = self._matching(exchange, routing_key, headers)
            queues.update((b.destination, None) for b in matched if not b.to_exchange)
            onward = [b.destination for b in matched if b.to_exchange]
            if not matched and (alternate := self._alternate(exchange)) is not None:
                onward = [alternate]
            ahead += [exchange for exchange in onward if exchange not in seen]
            seen.update(onward)
        return list(queues)

    def _matching(
        self, exchange: Exchange, routing_key: str, headers: Mapping[str, Any]
    ) -> list[Binding]:
        matches = _MATCHES[exchange.kind]
        bound = self._bindings.get(exchange.name, ())
        return [binding for binding in bound if matches(binding, routing_key, headers)]

    def _alternate(self, exchange: Exchange) -> str | None:
        if exchange.alternate is not None:
            return exchange.alternate
        policy = effective_policy(
            self._policies.values(), exchange.name, self._version, apply_to="exchanges"
        )
        alternate = None if policy is None else policy.definition.get(ALTERNATE)
        return None if alternate is None else str(alternate)


def _direct(binding: Binding, routing_key: str, _headers: Mapping[str, Any]) -> bool:
    return binding.routing_key == routing_key


def _fanout(_binding: Binding, _routing_key: str, _headers: Mapping[str, Any]) -> bool:
    return True


def _topic(binding: Binding, routing_key: str, _headers: Mapping[str, Any]) -> bool:
    # To the broker an empty key has no words at all, where splitting it gives one.
    pattern = binding.routing_key
    if not routing_key:
        return not pattern or set(pattern.split(".")) == {"#"}
    return bool(pattern) and topic_matches(pattern, routing_key)


def _headers(binding: Binding, _routing_key: str, headers: Mapping[str, Any]) -> bool:
    mode = str(binding.arguments.get("x-match", "all"))
    wanted = {
        key: value
        for key, value in binding.arguments.items()
        if key != "x-match" and (mode.endswith("-with-x") or not key.startswith("x-"))
    }
    found = (key in headers and _same(value, headers[key]) for key, value in wanted.items())
    return any(found) if mode.startswith("any") else all(found)


def _same(wanted: Any, value: Any) -> bool:
    # A binding argument without a value asks for presence only; True is no 1 on the wire.
    return wanted is None or (type(wanted) is type(value) and bool(wanted == value))


_MATCHES: dict[ExchangeKind, _Match] = {
    ExchangeKind.DIRECT: _direct,
    ExchangeKind.TOPIC: _topic,
    ExchangeKind.FANOUT: _fanout,
    ExchangeKind.HEADERS: _headers,
}
