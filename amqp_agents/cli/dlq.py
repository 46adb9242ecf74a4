"""`amqp-agents dlq`: look at the messages that agents gave up, and send them back."""

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from amqp_agents import dead_letters
from amqp_agents.brokers.management import ManagementError
from amqp_agents.brokers.rabbitmq import RabbitMQBroker
from amqp_agents.cli.connecting import AsJson, Url, connected, management_of, run_async
from amqp_agents.cli.dlq_format import (
    COLUMNS,
    body_json,
    facts_json,
    properties_json,
    row_of,
    told_in_full,
)
from amqp_agents.cli.dlq_safety import ensure_safe, warn_of_looks
from amqp_agents.cli.examples import with_examples
from amqp_agents.cli.output import counted, note, progress, say, say_json, say_table
from amqp_agents.cli.target import DEFAULT_FILE, load_desired
from amqp_agents.config import Settings, load_settings
from amqp_agents.dead_letters import DeadLetterFacts, Replay
from amqp_agents.errors import (
    AgentError,
    BrokerConnectionError,
    ConfigurationError,
    TopologyMissingError,
)
from amqp_agents.observability import Telemetry
from amqp_agents.pipeline import Delivery
from amqp_agents.publisher import AsyncPublisher
from amqp_agents.topology.names import AGENT_ID, checked_agent_id, dead_letter_queue

LIST_HELP = with_examples(
    "List dead letters, oldest first. Looking never loses one.",
    "amqp-agents dlq list",
    "amqp-agents dlq list quality_agent --limit 20 --json",
)
SHOW_HELP = with_examples(
    "Show one dead letter. Why it is there, its headers, its body.",
    "amqp-agents dlq show quality_agent 3f2a9c",
)
REPLAY_HELP = with_examples(
    "Send dead letters back to their agent. Each is removed once its copy is confirmed.",
    "amqp-agents dlq replay quality_agent 3f2a9c",
    "amqp-agents dlq replay quality_agent --all --rate 20 --yes",
)

Agent = Annotated[str, typer.Argument(help="Whose dead letters.", show_default=False)]
_QUEUE = re.compile(rf"agent\.({AGENT_ID.pattern})\.dlq")


def list_letters(
    agent: Annotated[
        str | None, typer.Argument(help="Whose; without it, all agents'.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of each agent.")] = 100,
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="FILE_OR_APP",
            help="Names the agents where no management API does.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, oldest first."""
    if agent is not None:
        checked_agent_id(agent)
    settings = load_settings(url=url)
    found, totals = run_async(_list(settings, agent, topology, limit))
    now = datetime.now(UTC)
    if as_json:
        letters = [facts_json(each, now) for each in found]
        say_json({"dead_letters": letters, "totals": totals})
        return
    if found:
        say_table(COLUMNS, [row_of(each, now) for each in found])
    more = sum(totals.values()) - len(found)
    if more > 0:
        note(f"{more} more are not shown; see them with --limit")
    if not found:
        say(f"no dead letters ({', '.join(totals) or 'no agent has a dead-letter queue here'})")


def show(agent: Agent, message_id: str, url: Url = None, as_json: AsJson = False) -> None:
    """Show one dead letter."""
    delivery = run_async(_find(load_settings(url=url), checked_agent_id(agent), message_id))
    facts = dead_letters.describe(delivery, agent=agent)
    if as_json:
        told = facts_json(facts, datetime.now(UTC))
        say_json(told | {"properties": properties_json(delivery)} | body_json(delivery))
        return
    for line in told_in_full(facts, delivery):
        say(line)


def replay(  # noqa: PLR0913 - one parameter for each option
    agent: Agent,
    message_id: Annotated[
        str | None, typer.Argument(help="Which one; or --all.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All there are now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --all.")] = False,
    rate: Annotated[
        float, typer.Option(min=0.01, max=10_000, help="At most so many in a second.")
    ] = 100.0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to their agent's inbox."""
    if (message_id is None) is not everything:
        raise ConfigurationError("replay takes either a MESSAGE_ID or --all; name one of them")
    settings = load_settings(url=url)
    checked_agent_id(agent)
    if message_id is not None:
        count = run_async(_replay_one(settings, agent, message_id))
        told = f"replayed message {message_id} to agent {agent}"
    else:
        count = _replay_all(settings, agent, rate=rate, yes=yes)
        told = f"replayed {counted(count, 'dead letter')} of agent {agent}"
    if as_json:
        say_json({"agent": agent, "replayed": count, "message_id": message_id})
    else:
        say(told)


async def _list(
    settings: Settings, agent: str | None, topology: str | None, limit: int
) -> tuple[list[DeadLetterFacts], dict[str, int]]:
    found: list[DeadLetterFacts] = []
    totals: dict[str, int] = {}
    async with connected(settings) as broker:
        agents = [agent] if agent is not None else await _agents(settings, topology)
        for each in agents:
            total = await broker.depth(dead_letter_queue(each))
            if total is None and agent is None:
                continue
            known = total is not None and await ensure_safe(broker, settings, each)
            letters = await dead_letters.listed(broker, each, limit=limit)
            if not known:
                warn_of_looks(broker, letters)
            totals[each] = max(total or 0, len(letters))
            found += letters
    return found, totals


async def _agents(settings: Settings, topology: str | None) -> Sequence[str]:
    """Return who has a dead-letter queue, or is declared: the first source that can tell."""
    if topology is None:
        try:
            async with management_of(settings) as management:
                queues = [str(queue.get("name")) for queue in await management.queues()]
        except (BrokerConnectionError, ManagementError) as error:
            if not DEFAULT_FILE.is_file():
                raise ConfigurationError(
                    f"nothing says which agents there are: name one, or --topology FILE_OR_APP "
                    f"({error})"
                ) from None
        else:
            return sorted(match[1] for queue in queues if (match := _QUEUE.fullmatch(queue)))
    return [agent.name for agent in load_desired(topology).agents]


async def _find(settings: Settings, agent: str, message_id: str) -> Delivery:
    async with connected(settings) as broker:
        await ensure_safe(broker, settings, agent)
        delivery = await dead_letters.found(broker, agent, message_id)
    if delivery is None:
        raise _no_such(agent, message_id)
    return delivery


async def _replay_one(settings: Settings, agent: str, message_id: str) -> int:
    async with connected(settings) as broker:
        await ensure_safe(broker, settings, agent)
        sent = await _replay(broker, settings, agent).one(message_id)
    if sent is None:
        raise _no_such(agent, message_id)
    return 1


def _replay_all(settings: Settings, agent: str, *, rate: float, yes: bool) -> int:
    total = run_async(_depth(settings, agent))
    if total and not yes:
        question = f"Send {counted(total, 'dead letter')} back to agent {agent}?"
        if not typer.confirm(question, err=True):
            raise AgentError("nothing was replayed; say --yes to replay without being asked")
    return run_async(_replay_many(settings, agent, total, rate)) if total else 0


async def _depth(settings: Settings, agent: str) -> int:
    queue = dead_letter_queue(agent)
    async with connected(settings) as broker:
        total = await broker.depth(queue)
    if total is None:
        raise TopologyMissingError([f"queue {queue}"], remedy="run 'amqp-agents topology apply'")
    return total


async def _replay_many(settings: Settings, agent: str, total: int, rate: float) -> int:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(connected(settings))
        advance = stack.enter_context(progress("replay", total))
        replaying = _replay(
            broker, settings, agent, per_second=rate, on_replayed=lambda _: advance()
        )
        try:
            return await replaying.all(total)
        finally:
            if replaying.count < total:
                note(f"replayed {replaying.count} of {total}; the others are where they were")


def _replay(broker: RabbitMQBroker, settings: Settings, agent: str, **options: Any) -> Replay:
    publisher = AsyncPublisher(broker, settings=settings, telemetry=Telemetry())
    return Replay(broker, publisher, agent, **options)


def _no_such(agent: str, message_id: str) -> AgentError:
    return AgentError(
        f"agent {agent!r} has no dead letter {message_id!r}; see 'amqp-agents dlq list {agent}'"
    )
