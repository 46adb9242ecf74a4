"""Pictures of a topology for Mermaid and Graphviz; the delay levels are one box."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from amqp_agents.topology import names
from amqp_agents.topology.delays import LEVELS, MAX_DELAY_SECONDS
from amqp_agents.topology.model import AgentSpec, Binding, Topology

_LEVEL = re.compile(r"agent\.delay\.v1\.[0-9]+")
_CHAIN = f"agent.delay.v1.0 … {LEVELS - 1}\n{LEVELS} levels, 1 s to {MAX_DELAY_SECONDS // 3600} h"

_LINE = "\n"

# Its queues belong to running clients, so that no declaration draws an arrow to them.
_ENDS = {names.REPLY: "\na queue of each client"}


class Shape(StrEnum):
    """How a node is drawn."""

    EXCHANGE = "exchange"
    QUEUE = "queue"
    DEAD = "dead"
    CHAIN = "chain"


@dataclass(frozen=True, slots=True)
class Node:
    """One box; `group` is the agent whose it is."""

    id: str
    label: str
    shape: Shape
    group: str | None = None


@dataclass(slots=True)
class Graph:
    """Nodes by what they stand for, and edges with the labels of all ways between two."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str, bool], list[str]] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    def connect(self, source: str, target: str, label: str, *, dashed: bool = False) -> None:
        """Add a way; the ways inside of one box, and those that lead nowhere, are left out."""
        if source == target or source not in self.nodes or target not in self.nodes:
            return
        ends = (self.nodes[source].id, self.nodes[target].id, dashed)
        labels = self.edges.setdefault(ends, [])
        if label and label not in labels:
            labels.append(label)

    def members(self, group: str | None) -> Iterator[Node]:
        """Yield the nodes of one agent, or with None those of nobody."""
        yield from (node for node in self.nodes.values() if node.group == group)


def mermaid(topology: Topology) -> str:
    """Return a Mermaid flowchart. Dashed: where messages go that find no way, or fail.

    >>> print(mermaid(Topology()), end="")
    flowchart LR
      classDef dead stroke-dasharray: 4 3
    """
    graph = _graph(topology)
    lines = ["flowchart LR"]
    lines += [f"  {_mermaid_node(node)}" for node in graph.members(None)]
    for number, (group, title) in enumerate(graph.groups.items()):
        lines.append(f"  subgraph g{number}[{_mermaid_text(title)}]")
        lines += [f"    {_mermaid_node(node)}" for node in graph.members(group)]
        lines.append("  end")
    for (source, target, dashed), labels in graph.edges.items():
        label = f"|{_mermaid_text(_LINE.join(labels))}|" if labels else ""
        lines.append(f"  {source} {'-.->' if dashed else '-->'}{label} {target}")
    lines.append("  classDef dead stroke-dasharray: 4 3")
    return "\n".join(lines) + "\n"


def graphviz(topology: Topology) -> str:
    """Return a graph in the DOT language. Dashed: where messages go that find no way, or fail.

    >>> print(graphviz(Topology()).splitlines()[0])
    digraph topology {
    """
    graph = _graph(topology)
    lines = ["digraph topology {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    lines.append('  edge [fontname="sans-serif", fontsize=10];')
    lines += [f"  {_dot_node(node)}" for node in graph.members(None)]
    for number, (group, title) in enumerate(graph.groups.items()):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_dot_text(title)};"]
        lines += [f"    {_dot_node(node)}" for node in graph.members(group)]
        lines.append("  }")
    for (source, target, dashed), labels in graph.edges.items():
        style = ", style=dashed" if dashed else ""
        lines.append(f"  {source} -> {target} [label={_dot_text(_LINE.join(labels))}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _graph(topology: Topology) -> Graph:
    graph = Graph(groups={agent.name: _title(agent) for agent in topology.agents})
    owners = {names.inbox(agent.name): agent.name for agent in topology.agents}
    owners |= {names.dead_letter_queue(agent.name): agent.name for agent in topology.agents}
    dead = {names.LOST, *(names.dead_letter_queue(agent.name) for agent in topology.agents)}
    for exchange in topology.exchanges:
        label = f"{exchange.name}\n{exchange.kind.value}{_ENDS.get(exchange.name, '')}"
        _add(graph, _box("x", exchange.name), label, Shape.EXCHANGE)
    for queue in topology.queues:
        shape = Shape.DEAD if queue.name in dead else Shape.QUEUE
        _add(graph, _box("q", queue.name), queue.name, shape, owners.get(queue.name))
    _ways(graph, topology)
    return graph


def _ways(graph: Graph, topology: Topology) -> None:
    for binding in topology.bindings:
        kind = "x" if binding.to_exchange else "q"
        target = _box(kind, binding.destination)
        graph.connect(_box("x", binding.source), target, _binding_label(binding))
    for exchange in topology.exchanges:
        if exchange.alternate is not None:
            source, target = _box("x", exchange.name), _box("x", exchange.alternate)
            # The chain falls through to its exit; everywhere else no binding took the message.
            chain = source == _box("x", names.delay_level(0))
            graph.connect(source, target, "" if chain else "no target", dashed=not chain)
    for queue in topology.queues:
        exchange_name = queue.settings.get("x-dead-letter-exchange")
        if exchange_name and _LEVEL.fullmatch(queue.name) is None:
            target = _box("x", str(exchange_name))
            graph.connect(_box("q", queue.name), target, "dead letters", dashed=True)


def _add(graph: Graph, box: str, label: str, shape: Shape, group: str | None = None) -> None:
    if box == "chain":
        label, shape = _CHAIN, Shape.CHAIN
    if box not in graph.nodes:
        graph.nodes[box] = Node(f"n{len(graph.nodes)}", label, shape, group)


def _box(kind: str, name: str) -> str:
    return "chain" if _LEVEL.fullmatch(name) else f"{kind}:{name}"


def _title(agent: AgentSpec) -> str:
    return agent.name if agent.role is None else f"{agent.name} ({agent.role})"


def _binding_label(binding: Binding) -> str:
    arguments = " ".join(f"{key}={value}" for key, value in binding.arguments.items())
    return f"{binding.routing_key} {arguments}".strip()


def _mermaid_text(text: str) -> str:
    escaped = text.replace("#", "#35;").replace('"', "#quot;").replace("`", "#96;")
    escaped = escaped.replace("<", "#lt;").replace(">", "#gt;").replace("\n", "<br>")
    return f'"{escaped}"'


def _mermaid_node(node: Node) -> str:
    opening, closing = {
        Shape.EXCHANGE: ("{{", "}}"),
        Shape.QUEUE: ("[(", ")]"),
        Shape.DEAD: ("[(", ")]:::dead"),
        Shape.CHAIN: ("[[", "]]"),
    }[node.shape]
    return f"{node.id}{opening}{_mermaid_text(node.label)}{closing}"


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _dot_node(node: Node) -> str:
    look = {
        Shape.EXCHANGE: "shape=hexagon",
        Shape.QUEUE: "shape=cylinder",
        Shape.DEAD: "shape=cylinder, style=dashed",
        Shape.CHAIN: "shape=box3d",
    }[node.shape]
    return f"{node.id} [label={_dot_text(node.label)}, {look}];"
