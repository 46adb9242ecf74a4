"""Agents declared in YAML: every mistake of a file is named at once, with its place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from yaml.nodes import Node

from amqp_agents.errors import ConfigurationError, TopologyConflictError
from amqp_agents.topology.arguments import nearest
from amqp_agents.topology.model import AgentSpec
from amqp_agents.topology.names import checked_agent_id, checked_intent_pattern
from amqp_agents.topology.yaml_positions import Reading, is_nothing

_Pairs: TypeAlias = dict[str, tuple[Node, Node]]
_Places: TypeAlias = Mapping[tuple[str, str], str]

_KEYS = tuple(each.name for each in fields(AgentSpec))


@dataclass(frozen=True, slots=True)
class DeclaredAgents:
    """The agents of a file; `places` tells where each agent's fields stand.

    A field that is not in `places` was not written, which is no statement about it.
    """

    agents: tuple[AgentSpec, ...] = ()
    places: _Places = field(default_factory=dict)


def load_topology(path: str | Path) -> DeclaredAgents:
    """Return the agents declared in a YAML file.

    Raises: ConfigurationError that names each problem as file:line:column.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        raise ConfigurationError(f"{path}:{line}:{column}: not UTF-8") from None
    return parse_topology(text, source=str(path))


def parse_topology(text: str, *, source: str = "<text>") -> DeclaredAgents:
    """Return the agents declared in a YAML text.

    Raises: ConfigurationError that names each problem as source:line:column.

    >>> parse_topology("agents: [{name: quality_agent, role: quality}]").agents[0].role
    'quality'
    """
    reading = Reading(source)
    root = reading.compose(text)
    pairs = reading.pairs(root, "the file")
    _refuse_unknown(reading, pairs, ("agents",))
    declared: dict[str, AgentSpec] = {}
    places: dict[tuple[str, str], str] = {}
    if "agents" in pairs:
        for node in reading.items(pairs["agents"][1], "'agents'"):
            _agent(reading, node, declared, places)
    elif not reading.problems:
        reading.fault(root, "expected the key 'agents'")
    reading.raise_if_any()
    return DeclaredAgents(tuple(declared.values()), places)


def merge(from_yaml: DeclaredAgents, from_code: Sequence[AgentSpec]) -> tuple[AgentSpec, ...]:
    """Return the agents of both, each once: those of the code first.

    Where both name an agent, what both state must agree; the order of a list does not
    count. Not written in the file, or None in the code, states nothing.

    Raises: TopologyConflictError that names each differing field, with both places.
    """
    written = {agent.name: agent for agent in from_yaml.agents}
    differences: list[str] = []
    merged = [
        _merged(agent, written.pop(agent.name), from_yaml.places, differences)
        if agent.name in written
        else agent
        for agent in from_code
    ]
    if differences:
        raise TopologyConflictError(
            differences, remedy="make the file and the code say the same, or state it once"
        )
    return (*merged, *written.values())


def _agent(
    reading: Reading,
    node: Node,
    declared: dict[str, AgentSpec],
    places: dict[tuple[str, str], str],
) -> None:
    pairs = reading.pairs(node, "an agent")
    _refuse_unknown(reading, pairs, _KEYS)
    name = _name(reading, node, pairs)
    spec = AgentSpec(
        name or "",
        role=_text(reading, pairs, "role"),
        capabilities=_list(reading, pairs, "capabilities"),
        events=_list(reading, pairs, "events", checked_intent_pattern),
        description=_text(reading, pairs, "description"),
    )
    if name is None:
        return
    if name in declared:
        first = places[name, "name"]
        reading.fault(pairs["name"][1], f"agent {name!r} is declared twice, first at {first}")
        return
    declared[name] = spec
    for key, (_, value) in pairs.items():
        if not is_nothing(value):
            places[name, key] = reading.place(value)


def _refuse_unknown(reading: Reading, pairs: _Pairs, known: Sequence[str]) -> None:
    for key, (node, _) in pairs.items():
        if key not in known:
            reading.fault(node, f"unknown key {key!r}; {nearest(key, known)}")


def _name(reading: Reading, node: Node, pairs: _Pairs) -> str | None:
    if "name" in pairs:
        return _checked(reading, pairs["name"][1], "'name'", checked_agent_id)
    if pairs:
        reading.fault(node, "an agent needs the key 'name'")
    return None


def _text(reading: Reading, pairs: _Pairs, key: str) -> str | None:
    if key not in pairs or is_nothing(pairs[key][1]):
        return None
    return reading.text(pairs[key][1], repr(key))


def _list(
    reading: Reading, pairs: _Pairs, key: str, check: Callable[[str], str] = str
) -> tuple[str, ...]:
    if key not in pairs or is_nothing(pairs[key][1]):
        return ()
    found: dict[str, Node] = {}
    for item in reading.items(pairs[key][1], repr(key)):
        value = _checked(reading, item, f"an item of {key!r}", check)
        if value in found:
            first = reading.place(found[value])
            reading.fault(item, f"{value!r} stands twice in {key!r}, first at {first}")
        elif value is not None:
            found[value] = item
    return tuple(found)


def _checked(reading: Reading, node: Node, what: str, check: Callable[[str], str]) -> str | None:
    value = reading.text(node, what)
    try:
        return None if value is None else check(value)
    except ConfigurationError as error:
        reading.fault(node, str(error))
        return None


def _merged(
    code: AgentSpec, written: AgentSpec, places: _Places, differences: list[str]
) -> AgentSpec:
    taken: dict[str, Any] = {}
    for key in _KEYS:
        place = places.get((code.name, key))
        have, want = getattr(code, key), getattr(written, key)
        if place is None or _same(have, want):
            continue
        if have is None:
            taken[key] = want
        else:
            values = f"have {_shown(have)} (code), want {_shown(want)} ({place})"
            differences.append(f"agent {code.name!r} {key}: {values}")
    return replace(code, **taken)


def _same(have: Any, want: Any) -> bool:
    if isinstance(have, tuple) and isinstance(want, tuple):
        return set(have) == set(want)
    return bool(have == want)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(sorted(value))}]"
    return repr(value)
