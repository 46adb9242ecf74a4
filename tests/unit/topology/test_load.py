import contextlib
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_agents.demo.agents import approval, execution, quality, support
from amqp_agents.errors import ConfigurationError, TopologyConflictError
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.load import load_topology, merge, parse_topology
from amqp_agents.topology.model import AgentSpec
from amqp_agents.topology.yaml_positions import MAX_BYTES, MAX_PROBLEMS

GOOD = """\
agents:
  - name: support_agent
  - name: quality_agent
    role: quality
    capabilities: [review_reply_risk]
    events: [ticket.closed, risk.#]
    description: >
      Reviews drafts.
"""
SHIPPED = next(
    folder / "topology" / "agents.yaml"
    for folder in Path(__file__).absolute().parents
    if (folder / "topology" / "agents.yaml").exists()
)


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_topology(text, source="a.yaml")
    return str(caught.value).splitlines()


def test_a_file_becomes_agents_with_the_place_of_each_field(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(GOOD)
    for given_path in (path, str(path)):
        declared = load_topology(given_path)
        assert declared.agents == (
            AgentSpec("support_agent"),
            AgentSpec(
                "quality_agent",
                role="quality",
                capabilities=("review_reply_risk",),
                events=("ticket.closed", "risk.#"),
                description="Reviews drafts.\n",
            ),
        )
        assert declared.places["quality_agent", "events"] == f"{path}:6:13"
        assert ("support_agent", "role") not in declared.places


def test_the_shipped_agents_can_be_laid_out() -> None:
    declared = load_topology(SHIPPED)
    assert {agent.name for agent in declared.agents} == {
        "support_agent",
        "quality_agent",
        "execution_agent",
        "approval_agent",
    }
    assert all(agent.role and agent.capabilities and agent.events for agent in declared.agents)
    assert standard_topology(declared.agents).agents == declared.agents


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a.yaml:1:1: empty; expected a mapping"),
        ("# nothing\n", "a.yaml:1:1: empty; expected a mapping"),
        ("- a\n", "a.yaml:1:1: the file must be a mapping, not a list"),
        ("agents\n", "a.yaml:1:1: the file must be a mapping, not text"),
        ("{}\n", "a.yaml:1:1: expected the key 'agents'"),
        ("agent: []\n", "a.yaml:1:1: unknown key 'agent'; did you mean 'agents'?"),
        ("agents:\n", "a.yaml:1:8: 'agents' must be a list, not nothing"),
        ("agents: {a: 1}\n", "a.yaml:1:9: 'agents' must be a list, not a mapping"),
        ("agents:\n  - a\n", "a.yaml:2:5: an agent must be a mapping, not text"),
        ("agents:\n  -\n", "a.yaml:2:4: an agent must be a mapping, not nothing"),
        ("agents:\n  - role: x\n", "a.yaml:2:5: an agent needs the key 'name'"),
        ("agents:\n  - {1: x, name: b}\n", "a.yaml:2:6: a key of an agent must be text, not a"),
        ("agents:\n  - name: b\n    rule: x\n", "a.yaml:3:5: unknown key 'rule'; did you mean"),
        (
            "agents:\n  - name: b\n    qqqq: x\n",
            "a.yaml:3:5: unknown key 'qqqq'; known are: capabilities, description,",
        ),
        (
            "agents:\n  - name: b\n    name: c\n",
            "a.yaml:3:5: key 'name' stands here twice, first at a.yaml:2:5",
        ),
        (
            "agents: []\nagents: []\n",
            "a.yaml:2:1: key 'agents' stands here twice, first at a.yaml:1:1",
        ),
        (
            "agents:\n  - name: b\n  - name: b\n",
            "a.yaml:3:11: agent 'b' is declared twice, first at a.yaml:2:11",
        ),
        ("agents:\n\t- name: b\n", "a.yaml:2:1: a tab cannot indent YAML; use spaces"),
        ("agents:\n  - name: 7\n", "a.yaml:2:11: 'name' must be text, not a whole number; put"),
        ("agents:\n  - name: on\n", "a.yaml:2:11: 'name' must be text, not true or false; put"),
        ("agents:\n  - name:\n", "a.yaml:2:10: 'name' must be text, not nothing"),
        ("agents:\n  - name: ' '\n", "a.yaml:2:11: 'name' is blank"),
        ("agents:\n  - name: a.b\n", "a.yaml:2:11: agent id 'a.b' must be 1 to 64 letters"),
        ("agents:\n  - name: lost\n", "a.yaml:2:11: agent id 'lost' is reserved"),
        ("agents:\n  - {name: b, role: [x]}\n", "a.yaml:2:21: 'role' must be text, not a list"),
        ("agents:\n  - {name: b, role: 1.5}\n", "a.yaml:2:21: 'role' must be text, not a number"),
        ("agents:\n  - {name: b, role: 2026-01-01}\n", "a.yaml:2:21: 'role' must be text, not a d"),
        ("agents:\n  - {name: b, role: ''}\n", "a.yaml:2:21: 'role' is blank"),
        ("agents:\n  - {name: b, events: x.y}\n", "a.yaml:2:23: 'events' must be a list, not text"),
        ("agents:\n  - {name: b, events: [1]}\n", "a.yaml:2:24: an item of 'events' must be text"),
        ("agents:\n  - {name: b, events: [x*]}\n", "a.yaml:2:24: intent 'x*' must be words"),
        (
            "agents:\n  - {name: b, events: [x, y, x]}\n",
            "a.yaml:2:30: 'x' stands twice in 'events', first at a.yaml:2:24",
        ),
        ("agents: [\n", "a.yaml:2:1: expected the node content, but found"),
        ("agents: []\n---\nagents: []\n", "a.yaml:2:1: expected a single document in the stream"),
        ("agents: *nope\n", "a.yaml:1:9: found undefined alias 'nope'"),
        ("agents:\n  - name: a\x07\n", "a.yaml:2:12: a control character"),
        (
            "agents: !!python/object/apply:os.system [x]\n",
            "a.yaml:1:42: an agent must be a mapping, not text",
        ),
        (
            "agents: [{name: !!python/name:os.system x}]\n",
            "a.yaml:1:17: 'name' must be text, not a value tagged tag:yaml.org,2002:python/name",
        ),
        ("agents: [{<<: 1, name: b}]\n", "a.yaml:1:15: '<<' must name a mapping, not a whole"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_column(text: str, problem: str) -> None:
    (found,) = problems_of(text)
    assert found.startswith(problem)


def test_all_mistakes_of_a_file_are_named_at_once_in_their_order() -> None:
    text = """\
        agents:
          - name: a
            rol: x
            events: [b c, 1]
          - role: 5
          - name: a
        agnts: []
        """
    assert [problem.split(": ")[0] for problem in problems_of(dedent(text))] == [
        "a.yaml:3:5",
        "a.yaml:4:14",
        "a.yaml:4:19",
        "a.yaml:5:5",
        "a.yaml:5:11",
        "a.yaml:6:11",
        "a.yaml:7:1",
    ]


def test_a_flood_of_mistakes_is_cut_short() -> None:
    found = problems_of("agents:\n" + "  - 1\n" * (MAX_PROBLEMS + 5))
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1] == "… and 5 more"


def test_anchors_aliases_and_merge_keys_are_read() -> None:
    text = """\
        agents:
          - &base
            name: a
            role: worker
            events: &events [x, y]
          - name: b
            events: *events
          - <<: *base
            name: c
          - <<: [{role: first}, *base]
            name: d
        """
    agents = parse_topology(dedent(text)).agents
    assert [(agent.name, agent.role, agent.events) for agent in agents] == [
        ("a", "worker", ("x", "y")),
        ("b", None, ("x", "y")),
        ("c", "worker", ("x", "y")),
        ("d", "first", ("x", "y")),
    ]


def test_a_key_without_a_value_states_nothing() -> None:
    declared = parse_topology("agents: [{name: a, role: , events: }]")
    assert declared.agents == (AgentSpec("a"),)
    assert set(declared.places) == {("a", "name")}


def test_no_agents_at_all_is_a_declaration_too() -> None:
    assert parse_topology("agents: []").agents == ()


def test_aliases_that_stand_for_too_much_are_refused_quickly() -> None:
    events = ", ".join(f"e{number}" for number in range(600))
    agents = "".join(f"  - {{name: a{number}, events: *e}}\n" for number in range(600))
    text = f"agents:\n  - {{name: a, events: &e [{events}]}}\n{agents}"
    assert any("use fewer aliases" in problem for problem in problems_of(text))


def test_nested_aliases_are_never_multiplied_out() -> None:
    levels = "".join(f"  - &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    found = problems_of(f"agents:\n  - &l0 [x, x, x]\n{levels}")
    assert len(found) == 12
    assert all("an agent must be a mapping, not a list" in problem for problem in found)


@pytest.mark.parametrize("text", ["&a [*a]", "&a {agents: *a}", "agents: &a [*a]"])
def test_what_contains_itself_is_refused(text: str) -> None:
    assert problems_of(text)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_deep_file_is_refused_before_it_exhausts_the_stack(opening: str) -> None:
    assert "nested more than 20 levels deep" in problems_of(opening * 5000)[0]


def test_a_huge_file_is_refused_unread() -> None:
    (found,) = problems_of("#" * (MAX_BYTES + 1))
    assert f"at most {MAX_BYTES} are read" in found


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.yaml: cannot be read: No such file"):
        load_topology(tmp_path / "gone.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_topology(tmp_path)


def test_a_file_that_is_not_utf8_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("agents:\n  - name: ü\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"latin\.yaml:2:11: not UTF-8"):
        load_topology(path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfagents: [{name: a}]\n")
    assert load_topology(path).agents == (AgentSpec("a"),)


@given(st.text(alphabet="ab:-[]{}&*#!|>'\"\n ,?<1\t", max_size=60))
def test_any_text_is_agents_or_a_list_of_problems(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        assert isinstance(parse_topology(f"agents: {text}").agents, tuple)


def test_agents_of_file_and_code_are_joined() -> None:
    declared = parse_topology(GOOD)
    merged = merge(declared, [AgentSpec("execution_agent"), AgentSpec("support_agent")])
    names = [agent.name for agent in merged]
    assert names == ["execution_agent", "support_agent", "quality_agent"]


def test_what_only_one_of_file_and_code_states_holds() -> None:
    declared = parse_topology("agents: [{name: a, role: quality, events: [x, y]}]")
    code = AgentSpec("a", events=("y", "x"), capabilities=("c",), description="d")
    assert merge(declared, [code]) == (
        AgentSpec("a", role="quality", events=("y", "x"), capabilities=("c",), description="d"),
    )


def test_each_field_in_which_file_and_code_differ_is_named_with_both_places() -> None:
    declared = parse_topology(GOOD, source="agents.yaml")
    code = AgentSpec("quality_agent", role="checker", capabilities=("review_reply_risk",))
    with pytest.raises(TopologyConflictError) as caught:
        merge(declared, [code])
    assert caught.value.differences == (
        "agent 'quality_agent' role: have 'checker' (code), want 'quality' (agents.yaml:4:11)",
        "agent 'quality_agent' events: have [] (code),"
        " want [risk.#, ticket.closed] (agents.yaml:6:13)",
    )


def test_an_agent_twice_in_the_code_is_left_for_the_layout_to_refuse() -> None:
    twice = [AgentSpec("support_agent"), AgentSpec("support_agent")]
    assert len([a for a in merge(parse_topology(GOOD), twice) if a.name == "support_agent"]) == 2


def test_the_shipped_agents_say_what_the_demo_declares_in_code() -> None:
    declared = load_topology(SHIPPED)
    code = [agent.spec for agent in (support, quality, execution, approval)]
    assert {agent.name for agent in merge(declared, code)} == {agent.name for agent in code}
