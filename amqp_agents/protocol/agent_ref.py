"""The name of an agent, with the role it speaks in."""

import re
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_PATTERN = "[A-Za-z0-9_-]{1,64}"
_AGENT_ID = re.compile(_PATTERN)


class AgentRef(str):
    """An agent id that is a plain string everywhere, and also knows its role.

    Equality and hash are the id's alone: one agent in two roles is one agent.

    >>> ref = AgentRef("support_agent", role="support")
    >>> ref == "support_agent", ref.agent_id, ref.role
    (True, 'support_agent', 'support')
    """

    __slots__ = ("role",)
    role: str | None

    def __new__(cls, agent_id: str, role: str | None = None) -> Self:
        if _AGENT_ID.fullmatch(agent_id) is None:
            raise ValueError(
                f"agent id {agent_id[:80]!r} must be 1 to 64 letters, digits, '_' or '-'"
            )
        self = super().__new__(cls, agent_id)
        self.role = role
        return self

    def __getnewargs__(self) -> tuple[str, str | None]:  # type: ignore[override]
        return str(self), self.role

    @property
    def agent_id(self) -> str:
        """The id as an exact `str`, without the role."""
        return str(self)

    @classmethod
    def parse(cls, value: Any) -> "AgentRef":
        """Read a plain id or `{"agent_id": …, "role": …}`.

        Raises: ValueError naming what is expected.

        >>> AgentRef.parse({"agent_id": "quality_agent"}).role is None
        True
        """
        if isinstance(value, AgentRef):
            return value
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, dict) and isinstance(value.get("agent_id"), str):
            role = value.get("role")
            if role is None or isinstance(role, str):
                return cls(value["agent_id"], role)
        raise ValueError("expected an agent id, or an object with agent_id and role")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^{_PATTERN}$"}
