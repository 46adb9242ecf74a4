"""`amqp-agents doctor`: look at everything agents need, and say what to do about the rest."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

import typer

from amqp_agents.brokers.management import REFUSED, Management, ManagementError
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.cli.connecting import (
    NAME,
    AsJson,
    Url,
    management_of,
    run_async,
    whereabouts,
)
from amqp_agents.cli.error_text import printable, sentences_of
from amqp_agents.cli.examples import with_examples
from amqp_agents.cli.findings import (
    Finding,
    State,
    management_fault,
    of_permissions,
    of_plugins,
    of_topology,
    of_version,
)
from amqp_agents.cli.group import ERROR
from amqp_agents.cli.output import console, say_json
from amqp_agents.cli.target import load_desired
from amqp_agents.config import Settings, load_settings
from amqp_agents.errors import AgentError, BrokerConnectionError, ConfigurationError
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import Topology

HELP = with_examples(
    "Look at everything that agents need. Connection, version, management API, permissions, "
    "plugins, topology: each line says what to do, and anything wrong is exit code 1.",
    "amqp-agents doctor",
    "amqp-agents doctor my_agents:app --json",
)
STYLES = {State.RIGHT: "green", State.NOTE: "yellow", State.WRONG: "bold red"}


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE_OR_APP",
            help="A YAML file or module:app whose topology is checked too.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Check everything agents need; exit code 1 if something is wrong."""
    findings = run_async(_collect(target, url, live=not as_json))
    wrong = [each for each in findings if each.state is State.WRONG]
    if as_json:
        say_json({"ok": not wrong, "findings": [asdict(each) for each in findings]})
    if wrong:
        raise typer.Exit(ERROR)


async def _collect(target: str | None, url: str | None, *, live: bool) -> list[Finding]:
    findings = []
    async for finding in _findings(target, url):
        findings.append(finding)
        if live:
            show(finding)
    return findings


def show(finding: Finding) -> None:
    """Print one finding: what it is about, how it is, and the mend."""
    target = console()
    target.print(f"{finding.state.value:<6}", style=STYLES[finding.state], end="")
    mend = f" -> {finding.mend}" if finding.mend else ""
    target.print(printable(f"{finding.about}: {finding.told}{mend}"), soft_wrap=True)


async def _findings(target: str | None, url: str | None) -> AsyncIterator[Finding]:
    try:
        settings = load_settings(url=url)
        where = whereabouts(settings)
        broker = RabbitMQBroker(settings, name=NAME)
    except ConfigurationError as error:
        yield Finding("settings", State.WRONG, sentences_of(error)[0])
        return
    try:
        try:
            await broker.connect(timeout_seconds=settings.connect_timeout_seconds)
        except BrokerConnectionError as error:
            yield Finding("connection", State.WRONG, sentences_of(error)[0])
            return
        told = f"RabbitMQ at {where['hosts']}, vhost {where['vhost']!r}, user {where['user']!r}"
        yield Finding("connection", State.RIGHT, told)
        yield of_version(broker.version)
        async for finding in _by_management(settings, where["user"]):
            yield finding
        yield await _topology(broker, target)
    finally:
        await broker.close()


async def _by_management(settings: Settings, user: str) -> AsyncIterator[Finding]:
    async with management_of(settings) as management:
        fault = await management_fault(management)
        if fault is None:
            yield Finding("management", State.RIGHT, f"{management.url}: limits become policies")
        else:
            told = "limits become arguments, and bindings cannot be checked"
            yield Finding("management", State.NOTE, told, fault)
        yield await _permissions(management, user)
        if fault is None:
            yield of_plugins(await management.overview())


async def _permissions(management: Management, user: str) -> Finding:
    try:
        return of_permissions(await management.permissions(user), user)
    except (BrokerConnectionError, ManagementError) as error:
        if isinstance(error, ManagementError) and error.status not in REFUSED:
            raise
        return Finding(
            "permissions",
            State.NOTE,
            "not seen: that takes the management API and the tag administrator",
            "ask for: rabbitmqctl list_user_permissions USER",
        )


async def _topology(broker: RabbitMQBroker, target: str | None) -> Finding:
    try:
        desired = _desired(target)
        changes = await broker.plan(desired)
    except AgentError as error:
        return Finding("topology", State.WRONG, sentences_of(error)[0])
    what = target or "what all agents share (name a file or module:app to check its agents)"
    return of_topology(changes, what, f"amqp-agents topology apply {target or ''}".rstrip())


def _desired(target: str | None) -> Topology:
    return standard_topology([]) if target is None else load_desired(target)
