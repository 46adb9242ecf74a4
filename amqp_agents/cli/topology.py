"""`amqp-agents topology`: what the agents need on the broker: create it, compare it, draw it."""

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from amqp_agents.cli.connecting import AsJson, Url, connected, management_of, run_async
from amqp_agents.cli.examples import with_examples
from amqp_agents.cli.findings import WORDS, management_fault, told_of
from amqp_agents.cli.group import DIFFERENCES
from amqp_agents.cli.output import counted, note, progress, say, say_json
from amqp_agents.cli.target import load_desired
from amqp_agents.config import Settings, load_settings
from amqp_agents.errors import TopologyConflictError
from amqp_agents.topology.model import Topology
from amqp_agents.topology.plan import CONFLICT_REMEDY, Change, ChangeKind
from amqp_agents.topology.render import graphviz, mermaid

Desired = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE_OR_APP",
        help="A YAML file or module:app; topology/agents.yaml if there is one.",
        show_default=False,
    ),
]

APPLY_HELP = with_examples(
    "Create what is missing, and verify it. What exists with other settings is listed, and kept.",
    "amqp-agents topology apply",
    "amqp-agents topology apply my_agents:app --url amqp://guest:guest@127.0.0.1:5672/",
)
CHECK_HELP = with_examples(
    "List what differs, change nothing. Exit code 0 if nothing does, 2 if something does.",
    "amqp-agents topology check topology/agents.yaml",
    "amqp-agents topology check my_agents:app --json",
)
GRAPH_HELP = with_examples(
    "Print a picture of it as text. Needs no broker.",
    "amqp-agents topology graph",
    "amqp-agents topology graph my_agents:app --format dot | dot -Tsvg -o topology.svg",
)

FEW = 8
MEND = (
    "'amqp-agents topology apply' creates what is missing; change or delete what differs "
    "yourself (a queue once it is empty)"
)


class Format(StrEnum):
    """Languages of graphs."""

    MERMAID = "mermaid"
    DOT = "dot"


def apply(target: Desired = None, url: Url = None, as_json: AsJson = False) -> None:
    """Create what is missing, and verify it."""
    desired = load_desired(target)
    told = run_async(_apply(desired, load_settings(url=url)))
    if as_json:
        say_json(told)
        return
    for what in ("created", "updated"):
        if told[what]:
            say(f"{what} {summary(told[what])}")
    if not told["created"] and not told["updated"]:
        say("nothing to do: everything is there")
    say("verified: the broker has all of it")
    say(told["settings"])


def check(target: Desired = None, url: Url = None, as_json: AsJson = False) -> None:
    """List what differs, and change nothing."""
    desired = load_desired(target)
    changes, unseen = run_async(_check(desired, load_settings(url=url)))
    if as_json:
        say_json({"differences": [change_json(each) for each in changes], "unchecked": unseen})
    else:
        for change in changes:
            say(told_of(change))
        if unseen:
            note(f"limits were compared as arguments, bindings could not be seen: {unseen}")
        say(f"{counted(len(changes), 'difference')}: {MEND}" if changes else "no differences")
    if changes:
        raise typer.Exit(DIFFERENCES)


def graph(
    target: Desired = None,
    language: Annotated[Format, typer.Option("--format", help="Which language.")] = Format.MERMAID,
    as_json: AsJson = False,
) -> None:
    """Print a picture of the topology as text."""
    desired = load_desired(target)
    text = mermaid(desired) if language is Format.MERMAID else graphviz(desired)
    if as_json:
        say_json({"format": language.value, "graph": text})
    else:
        say(text.rstrip("\n"))


def summary(objects: Sequence[str]) -> str:
    """Return objects by name if they are few, else how many of each kind.

    >>> summary(["queue agent.a"]), summary([f"queue agent.a{n}" for n in range(20)])
    ('queue agent.a', '20 queues')
    """
    if len(objects) <= FEW:
        return ", ".join(objects)
    counts = Counter(each.split(" ", 1)[0] for each in objects)
    return ", ".join(f"{count} {_plural(kind, count)}" for kind, count in counts.items())


def change_json(change: Change) -> dict[str, Any]:
    """Return one difference for programs."""
    return {
        "what": WORDS[change.kind],
        "kind": change.object_kind.value,
        "name": change.name,
        "differences": list(change.differences),
    }


def settings_told(topology: Topology, version: tuple[int, int], *, by_policies: bool) -> str:
    """Return which tunable settings there are, and whether an operator can change them."""
    settings = "; ".join(
        f"{policy.name} ({', '.join(f'{key}={value}' for key, value in policy.definition.items())})"
        for policy in topology.policies
        if policy.min_version <= version
    )
    if by_policies:
        told = f"settings by policies (management API), changeable at any time: {settings}"
    else:  # as an argument, "no limit" cannot be said before 4.0, and is the default there
        told = f"settings by arguments, fixed for the life of a queue: {settings}"
    return f"{told}; {priorities_told(version)}"


def priorities_told(version: tuple[int, int]) -> str:
    """Return what a quorum queue of this RabbitMQ makes of priorities.

    Source: RabbitMQ documentation, "Quorum Queues", message priorities.

    >>> priorities_told((3, 13))
    'priorities: delivered by arrival, RabbitMQ before 4.0 orders no quorum queue'
    """
    if version < (4, 0):
        return "priorities: delivered by arrival, RabbitMQ before 4.0 orders no quorum queue"
    if version < (4, 3):
        return "priorities: two classes, 1 to 4 before the others, about two to one"
    return "priorities: each of 1 to 9 by itself, 1 first"


async def _apply(desired: Topology, settings: Settings) -> dict[str, Any]:
    async with connected(settings) as broker:
        planned = await broker.plan(desired)
        _refuse_conflicts(planned)
        with progress("topology", len(planned)) as advance:
            changes = await broker.apply(desired, on_change=lambda _: advance())
        by_policies = bool(broker.policies_by_management)
        told = settings_told(desired, broker.version[:2], by_policies=by_policies)
        if not by_policies:
            told += f"; {await _why_no_policies(settings)}"
    return {
        "created": _of_kind(changes, ChangeKind.CREATE),
        "updated": _of_kind(changes, ChangeKind.UPDATE),
        "by": "policies" if by_policies else "arguments",
        "settings": told,
    }


async def _check(desired: Topology, settings: Settings) -> tuple[Sequence[Change], str | None]:
    async with connected(settings) as broker:
        changes = await broker.plan(desired)
        why = None if broker.policies_by_management else await _why_no_policies(settings)
    return changes, why


async def _why_no_policies(settings: Settings) -> str:
    async with management_of(settings) as management:
        fault = await management_fault(management)
    return fault or "the management API shows another cluster; set AMQP_AGENTS_MANAGEMENT_URL"


def _refuse_conflicts(changes: Sequence[Change]) -> None:
    conflicts = [
        re.sub("^differs ", "", told_of(change))
        for change in changes
        if change.kind is ChangeKind.CONFLICT
    ]
    if conflicts:
        raise TopologyConflictError(conflicts, remedy=CONFLICT_REMEDY)


def _of_kind(changes: Sequence[Change], kind: ChangeKind) -> list[str]:
    return [f"{each.object_kind.value} {each.name}" for each in changes if each.kind is kind]


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return "policies" if kind == "policy" else f"{kind}s"
