"""YAML text as nodes that know their place; nothing is constructed, so nothing can be run."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from amqp_agents.errors import ConfigurationError

MAX_BYTES = 512 * 1024
MAX_DEPTH = 20
MAX_VISITS = 50_000
MAX_PROBLEMS = 100

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a date",
    "map": "a mapping",
    "seq": "a list",
}


class _Loader(yaml.SafeLoader):
    """Composes nodes to a bounded depth, since composing is recursive."""

    depth = 0

    def compose_node(self, parent: Node | None, index: object) -> Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            problem = f"nested more than {MAX_DEPTH} levels deep"
            raise yaml.composer.ComposerError(None, None, problem, mark)
        try:
            return super().compose_node(parent, index)  # type: ignore[arg-type]
        finally:
            self.depth -= 1


@dataclass(slots=True)
class Reading:
    """One text being read: its problems so far, each with file, line and column."""

    source: str
    problems: set[tuple[int, int, str]] = field(default_factory=set)
    visits: int = 0

    def place(self, node: Node) -> str:
        """Return where the node starts, as editors take it."""
        return f"{self.source}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def fault(self, node: Node, sentence: str) -> None:
        """Note a problem and go on, so that one reading finds all of them."""
        mark = node.start_mark
        self.problems.add((mark.line, mark.column, f"{self.place(node)}: {sentence}"))

    def raise_if_any(self) -> None:
        """Raise: ConfigurationError with every problem, a line each."""
        if self.problems:
            lines = [line for _, _, line in sorted(self.problems)]
            if len(lines) > MAX_PROBLEMS:
                lines[MAX_PROBLEMS:] = [f"… and {len(lines) - MAX_PROBLEMS} more"]
            raise ConfigurationError("\n".join(lines))

    def compose(self, text: str) -> Node:
        """Return the root node. Raises: ConfigurationError for what is not one YAML document."""
        size = len(text.encode(errors="surrogatepass"))
        if size > MAX_BYTES:
            raise ConfigurationError(
                f"{self.source}:1:1: {size} bytes; at most {MAX_BYTES} are read"
            )
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            raise ConfigurationError(self._syntax(error)) from None
        except yaml.reader.ReaderError as error:
            raise ConfigurationError(self._character(text, error)) from None
        if node is None:
            raise ConfigurationError(f"{self.source}:1:1: empty; expected a mapping")
        return node

    def items(self, node: Node, what: str) -> Iterator[Node]:
        """Yield the items of a list; anything else is a problem of `what`."""
        if isinstance(node, SequenceNode):
            for item in node.value:
                self._visit(item)
                yield item
        else:
            self.fault(node, f"{what} must be a list, not {kind_of(node)}")

    def pairs(self, node: Node, what: str) -> dict[str, tuple[Node, Node]]:
        """Return key node and value node by key; a doubled key is a problem.

        `<<` brings in the pairs of another mapping; what is written beside it wins.
        """
        if not isinstance(node, MappingNode):
            self.fault(node, f"{what} must be a mapping, not {kind_of(node)}")
            return {}
        own: dict[str, tuple[Node, Node]] = {}
        merged: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            self._visit(key)
            if key.tag == _MERGE:
                merged = self._merged(value) | merged
            elif not is_text(key):
                self.fault(key, f"a key of {what} must be text, not {kind_of(key)}")
            elif key.value in own:
                first = self.place(own[key.value][0])
                self.fault(key, f"key {key.value!r} stands here twice, first at {first}")
            else:
                own[key.value] = (key, value)
        return merged | own

    def text(self, node: Node, what: str) -> str | None:
        """Return the text of a scalar; anything else is a problem of `what`."""
        if not is_text(node):
            quotes = "; put it in quotes" if isinstance(node, ScalarNode) and node.value else ""
            self.fault(node, f"{what} must be text, not {kind_of(node)}{quotes}")
            return None
        if not node.value.strip():
            self.fault(node, f"{what} is blank")
            return None
        return str(node.value)

    def _merged(self, value: Node) -> dict[str, tuple[Node, Node]]:
        sources = value.value if isinstance(value, SequenceNode) else [value]
        found: dict[str, tuple[Node, Node]] = {}
        for source in sources:
            if not isinstance(source, MappingNode):
                self.fault(value, f"'<<' must name a mapping, not {kind_of(source)}")
                continue
            for key, inner in source.value:
                self._visit(key)
                if key.tag == _MERGE:
                    self.fault(key, "'<<' inside of what '<<' brings in is not read")
                elif is_text(key):
                    found.setdefault(key.value, (key, inner))
        return found

    def _visit(self, node: Node) -> None:
        """Bound the work: aliases make a short text stand for an endless one."""
        self.visits += 1
        if self.visits > MAX_VISITS:
            self.fault(node, f"stands for more than {MAX_VISITS} values; use fewer aliases")
            self.raise_if_any()

    def _syntax(self, error: yaml.MarkedYAMLError) -> str:
        mark = error.problem_mark or error.context_mark
        where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        problem = error.problem or "not YAML"
        if problem.startswith("but "):
            problem = f"{error.context}, {problem}"
        if "'\\t'" in problem:
            problem = "a tab cannot indent YAML; use spaces"
        return f"{self.source}:{where}: {problem}"

    def _character(self, text: str, error: yaml.reader.ReaderError) -> str:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return f"{self.source}:{line}:{column}: a control character, which YAML does not allow"


def kind_of(node: Node) -> str:
    """Return what a node is, in words."""
    return _KINDS.get(node.tag.removeprefix(_TAG), f"a value tagged {node.tag}")


def is_text(node: Node) -> bool:
    """Return whether a node is a text scalar."""
    return isinstance(node, ScalarNode) and node.tag == f"{_TAG}str"


def is_nothing(node: Node) -> bool:
    """Return whether a key was written without a value."""
    return isinstance(node, ScalarNode) and node.tag == f"{_TAG}null"
