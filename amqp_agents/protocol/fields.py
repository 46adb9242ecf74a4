"""The kinds of values an envelope's fields hold."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from amqp_agents.protocol.times import utc_ms
from amqp_agents.protocol.versions import parse_version


def _short(text: str) -> str:
    if not 1 <= len(text.encode("utf-8", "surrogatepass")) <= 255:
        raise ValueError("must be 1 to 255 bytes of UTF-8")
    return text


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _version(text: str) -> str:
    parse_version(text)
    return text


LARGEST = 2**53 - 1
"""The largest whole number that every JSON reader takes for the same."""

ShortText = Annotated[str, AfterValidator(_short)]
Version = Annotated[str, AfterValidator(_version)]
Whole = Annotated[int, BeforeValidator(_not_bool)]
Moment = Annotated[datetime, BeforeValidator(utc_ms)]
CallbackType = Literal["queue", "webhook", "polling"]


class Causality(BaseModel):
    """What a message answers or follows from, and the step of the work it belongs to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent_message_id: str | None = None
    step_id: str | None = None


class Policy(BaseModel):
    """Who may see a message; handlers may raise the sensitivity, never lower it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    visibility: str = "internal"
    sensitivity: Literal["low", "normal", "high"] = "normal"
