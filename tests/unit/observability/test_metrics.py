from prometheus_client import CollectorRegistry, generate_latest

from amqp_agents.observability import Metrics


def test_each_name_is_there_once_and_has_our_prefix() -> None:
    families = [family.name for family in Metrics().registry.collect()]
    assert len(families) == len(set(families)) > 0
    assert all(name.startswith("amqp_agents_") for name in families)


def test_two_apps_in_one_process_never_collide() -> None:
    one, two = Metrics(), Metrics()
    one.late_replies.inc()
    assert b"amqp_agents_late_replies_total 1.0" in generate_latest(one.registry)
    assert b"amqp_agents_late_replies_total 0.0" in generate_latest(two.registry)


def test_a_registry_of_the_callers_own_is_used() -> None:
    registry = CollectorRegistry()
    assert Metrics(registry).registry is registry
