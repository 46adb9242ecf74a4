"""Prometheus metrics of the runtime, each name once."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

DURATION_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0)


class Metrics:
    """The counters of one app, on a registry of its own unless one is given.

    Two apps in one process therefore never collide.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self.deliveries = Counter(
            "amqp_agents_deliveries",
            "Deliveries settled, by agent and outcome",
            ["agent", "outcome"],
            registry=self.registry,
        )
        self.handling_seconds = Histogram(
            "amqp_agents_handling_seconds",
            "Time from delivery to outcome",
            ["agent"],
            buckets=DURATION_BUCKETS,
            registry=self.registry,
        )
        self.handlings = Gauge(
            "amqp_agents_handlings",
            "Handlers running now",
            ["agent"],
            registry=self.registry,
        )
        self.publishes = Counter(
            "amqp_agents_publishes",
            "Publishes by exchange and answer",
            ["exchange", "answer"],
            registry=self.registry,
        )
        self.dead_letters = Counter(
            "amqp_agents_dead_letters",
            "Messages given up, by agent and code",
            ["agent", "code"],
            registry=self.registry,
        )
        self.unsettled = Counter(
            "amqp_agents_unsettled",
            "Times an outcome could not be carried out: the delivery is kept, or comes again",
            ["agent"],
            registry=self.registry,
        )
        self.unreadable = Counter(
            "amqp_agents_unreadable",
            "Deliveries with a property that could not be read and was left out",
            ["agent"],
            registry=self.registry,
        )
        self.late_replies = Counter(
            "amqp_agents_late_replies",
            "Replies that came after their request had ended",
            registry=self.registry,
        )
        self.undelivered_replies = Counter(
            "amqp_agents_undelivered_replies",
            "Replies whose caller had left or could not be reached",
            ["agent"],
            registry=self.registry,
        )
        self.lost_settlements = Counter(
            "amqp_agents_lost_settlements",
            "Acks and rejects lost with their connection; the broker delivers again",
            ["agent"],
            registry=self.registry,
        )
