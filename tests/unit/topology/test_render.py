import re

import pytest

from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.model import AgentSpec, Exchange, ExchangeKind, Topology
from amqp_agents.topology.render import graphviz, mermaid

NASTY = 'a "quoted" <b>#1</b> `|]} \\ role\nof two lines'
AGENTS = [
    AgentSpec("a", role="quality", events=("ticket.closed", "#")),
    AgentSpec("b-1", role=NASTY),
    AgentSpec("end"),
]
DESIRED = standard_topology(AGENTS)
EMPTY = Topology()

TEXT = r'"[^"\n`<>]*"'
MERMAID = re.compile(
    rf"""flowchart[ ]LR
    |\ +n\d+(\{{\{{{TEXT}\}}\}}|\[\({TEXT}\)\](:::dead)?|\[\[{TEXT}\]\])
    |\ +subgraph[ ]g\d+\[{TEXT}\]
    |\ +end
    |\ +n\d+[ ](-->|-\.->)(\|{TEXT}\|)?[ ]n\d+
    |\ +classDef[ ]dead[ ].*""",
    re.VERBOSE,
)
DOT_TEXT = r'"(?:[^"\\\n]|\\.)*"'
DOT = re.compile(
    rf"""digraph[ ]topology[ ]\{{
    |\ +rankdir=LR;
    |\ +(node|edge)[ ]\[fontname={DOT_TEXT}(,[ ]fontsize=10)?\];
    |\ +n\d+[ ]\[label={DOT_TEXT},[ ]shape=\w+(,[ ]style=dashed)?\];
    |\ +subgraph[ ]cluster_\d+[ ]\{{
    |\ +label={DOT_TEXT};
    |\ +n\d+[ ]->[ ]n\d+[ ]\[label={DOT_TEXT}(,[ ]style=dashed)?\];
    |\ *\}}""",
    re.VERBOSE,
)


def unquoted(text: str) -> str:
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', "", text).replace("<br>", "")


@pytest.mark.parametrize("topology", [DESIRED, EMPTY])
def test_every_line_of_a_mermaid_chart_is_a_statement(topology: Topology) -> None:
    lines = mermaid(topology).splitlines()
    assert [line for line in lines if not MERMAID.fullmatch(line.replace("<br>", ""))] == []
    opened = sum(" subgraph " in line for line in lines)
    assert opened == sum(line.strip() == "end" for line in lines)


@pytest.mark.parametrize("topology", [DESIRED, EMPTY])
def test_every_line_of_a_graphviz_graph_is_a_statement(topology: Topology) -> None:
    text = graphviz(topology)
    assert [line for line in text.splitlines() if not DOT.fullmatch(line)] == []
    assert unquoted(text).count("{") == unquoted(text).count("}")


@pytest.mark.parametrize("draw", [mermaid, graphviz])
def test_every_arrow_joins_two_boxes_that_are_drawn_once(draw: object) -> None:
    text = draw(DESIRED)  # type: ignore[operator]
    boxes = re.findall(r"^ +(n\d+)(?=[\[{]| \[)", text, re.MULTILINE)
    arrows = re.findall(r"(n\d+) (?:-[-.]*>)(?:\|\"[^\"]*\"\|)? (n\d+)", text)
    assert len(set(boxes)) == len(boxes)
    assert arrows
    assert {end for arrow in arrows for end in arrow} <= set(boxes)


@pytest.mark.parametrize("draw", [mermaid, graphviz])
def test_the_delay_levels_are_one_box_and_dead_letters_are_shown(draw: object) -> None:
    text = draw(DESIRED)  # type: ignore[operator]
    assert text.count("agent.delay.v1.") == 1
    assert "17 levels, 1 s to 36 h" in text
    for name in ("agent.a.dlq", "agent.b-1.dlq", "agent.lost", "a (quality)"):
        assert name in text


def test_ways_between_two_boxes_share_an_arrow_with_all_keys() -> None:
    (line,) = [line for line in mermaid(DESIRED).splitlines() if "event.ticket.closed" in line]
    assert '|"agent.a<br>event.ticket.closed<br>event.#35;<br>broadcast.' in line


def test_an_alternate_outside_of_the_topology_draws_no_arrow() -> None:
    topology = Topology(exchanges=(Exchange("x", ExchangeKind.TOPIC, alternate="gone"),))
    assert "->" not in graphviz(topology)


def test_drawing_twice_gives_the_same_picture() -> None:
    assert mermaid(DESIRED) == mermaid(standard_topology(AGENTS))
