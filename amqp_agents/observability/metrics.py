"""Prometheus metrics of the runtime, each name once."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

DURATION_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0)


class Metrics:
    """The counters of one app, on a registry of its own unless one is given.

    Two apps in one process therefore never collide.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._declare_work()
        self._declare_trouble()

    def _declare_work(self) -> None:
        self.deliveries = self._counter(
            "amqp_agents_deliveries", "Deliveries settled, by agent and outcome", "agent", "outcome"
        )
        self.handling_seconds = Histogram(
            "amqp_agents_handling_seconds",
            "Time from delivery to outcome",
            ["agent"],
            buckets=DURATION_BUCKETS,
            registry=self.registry,
        )
        self.handlings = Gauge(
            "amqp_agents_handlings", "Handlers running now", ["agent"], registry=self.registry
        )
        self.publishes = self._counter(
            "amqp_agents_publishes", "Publishes by exchange and answer", "exchange", "answer"
        )

    def _declare_trouble(self) -> None:
        self.dead_letters = self._counter(
            "amqp_agents_dead_letters", "Messages given up, by agent and code", "agent", "code"
        )
        self.unsettled = self._counter(
            "amqp_agents_unsettled",
            "Times an outcome could not be carried out: the delivery is kept, or comes again",
            "agent",
        )
        self.unreadable = self._counter(
            "amqp_agents_unreadable",
            "Deliveries with a property that could not be read and was left out",
            "agent",
        )
        self.late_replies = self._counter(
            "amqp_agents_late_replies", "Replies that came after their request had ended"
        )
        self.undelivered_replies = self._counter(
            "amqp_agents_undelivered_replies",
            "Replies whose caller had left or could not be reached",
            "agent",
        )
        self.lost_settlements = self._counter(
            "amqp_agents_lost_settlements",
            "Acks and rejects lost with their connection; the broker delivers again",
            "agent",
        )

        self.breaker_state = Gauge(
            "amqp_agents_breaker_state",
            "Circuit breaker by agent and dependency: 0 closed, 1 half_open, 2 open, 3 held",
            ["agent", "dependency"],
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)
