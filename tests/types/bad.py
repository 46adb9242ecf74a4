"""Uses that must not type-check: each line says with which error.

A check of the whole project fails where one of them is an error no more.
"""

from typing import Any

from amqp_agents import AgentApp, Caller, Context, Outgoing, agent
from tests.types.my_agents import Draft, Review, review


async def ask(client: Caller, context: Context) -> None:
    """Ask in ways that cannot be answered."""
    await client.request(review, Review(risk_level="low"))  # type: ignore[misc]
    await client.request(review, {"text": "x"})  # type: ignore[call-overload]
    await client.request(review, Draft(text="x"), returns=Review)  # type: ignore[call-overload]
    await client.request(review, Draft(text="x"), intent="look")  # type: ignore[call-overload]
    await client.request(bare, Draft(text="x"))  # type: ignore[call-overload]
    await client.request("reviewer", "text")  # type: ignore[call-overload]
    await context.request(review, Review(risk_level="low"))  # type: ignore[misc]
    wrong: Draft = await client.request(review, Draft(text="x"))  # type: ignore[arg-type]
    await client.publish(wrong)  # type: ignore[arg-type]
    await review(Review(risk_level="low"))  # type: ignore[arg-type]
    (await review(Draft(text="x"))).text  # type: ignore[attr-defined]  # noqa: B018


def bare(draft: Draft) -> Review:
    """A function nobody declared."""
    return Review(risk_level=draft.text)


def declare() -> None:
    """Declare what cannot be a handler."""

    @agent("context_first")  # type: ignore[arg-type, type-var]
    async def context_first(context: Context, draft: Draft) -> Review:
        return Review(risk_level=draft.text)

    @agent("gives_a_tuple")  # type: ignore[arg-type]
    async def gives_a_tuple(draft: Draft) -> tuple[int, int]:
        return 1, 2

    @agent("gives_text")  # type: ignore[arg-type]
    def gives_text(draft: Draft) -> str:
        return draft.text

    @agent("takes_a_dict")  # type: ignore[arg-type, type-var]
    async def takes_a_dict(draft: dict[str, Any]) -> None: ...

    @agent("takes_nothing")  # type: ignore[arg-type]
    async def takes_nothing() -> None: ...

    AgentApp([bare])  # type: ignore[list-item]
    Outgoing("text", to="reviewer")  # type: ignore[type-var]
    Outgoing({}, recipient="reviewer")  # type: ignore[call-arg]
