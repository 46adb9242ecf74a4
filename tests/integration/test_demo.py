"""The demo, through the code path of `make demo`: what it tells has really happened."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from amqp_agents import demo
from amqp_agents.demo import story
from amqp_agents.demo.agents import history

ARROWS = (
    "-xp3: 2. task.request (unroutable)",
    "->>p4: 5. task.request review_reply_risk",
    "-->>p2: 6. task.result review_reply_risk",
    "->>p5: 7. task.request collect_missing_fact",
    "Note over p5: retried, attempt 1, again in 1 s",
    "-xp6: dead-lettered, INVALID_PAYLOAD",
    "-->>p2: 10. task.error create_coupon",
    "->>p7: 11. action.preview approve_action",
    "p7->>p2: 12. approval.decision approval.decided",
)


async def played(url: str | None, *, as_json: bool) -> tuple[int, str]:
    printed = io.StringIO()
    console = Console(file=printed, width=100)
    code = await demo.run(url, console=console, as_json=as_json)
    return code, printed.getvalue()


def check_pictures(told: dict) -> None:
    assert all(told["happened"].values()), told["happened"]
    assert len(told["happened"]) == 12
    for arrow in ARROWS:
        assert arrow in told["mermaid"]
    heard = told["messages"][-1]
    assert (heard["intent"], len(heard["recipients"])) == ("ticket.closed", 3)


async def test_it_plays_in_memory_and_its_diagram_holds_what_happened():
    code, printed = await played(None, as_json=True)
    assert code == 0
    check_pictures(json.loads(printed))


async def test_it_tells_the_story_line_by_line_with_a_table_and_a_diagram():
    code, printed = await played(None, as_json=False)
    assert code == 0
    assert "execution_agent failed, the broker brings it back" in printed
    assert "The message chain of the ticket" in printed
    assert "sequenceDiagram\n    participant p1 as ticket_desk" in printed
    assert "NO" not in printed


async def test_it_fails_and_says_so_if_a_step_did_not_happen(monkeypatch):
    monkeypatch.setattr(story, "LIMIT_SECONDS", 0.5)
    monkeypatch.setattr(history, "of", lambda ticket: {"granted_cents": 2000})
    code, printed = await played(None, as_json=False)
    assert code == 1
    assert "NO  the broker brought the failed request back after 1 s" in printed
    assert "The demo is incomplete." in printed


@pytest.mark.rabbitmq
async def test_it_plays_on_rabbitmq_again_and_again_in_one_vhost(vhost_url):
    for _ in range(2):
        code, printed = await played(vhost_url, as_json=True)
        assert code == 0
        check_pictures(json.loads(printed))


async def test_the_picture_in_the_readme_is_what_the_demo_draws():
    _, printed = await played(None, as_json=True)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert json.loads(printed)["mermaid"].strip() in readme
