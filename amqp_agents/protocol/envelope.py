"""The message agents exchange: an envelope that is routed and checked, and a payload."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self, TypedDict, Unpack

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_serializer,
    model_validator,
)

from amqp_agents.errors import InvalidPayloadError
from amqp_agents.protocol.agent_ref import AgentRef
from amqp_agents.protocol.digest import DIGEST_SCHEME, payload_digest
from amqp_agents.protocol.fields import (
    LARGEST,
    CallbackType,
    Causality,
    Moment,
    Policy,
    ShortText,
    Version,
    Whole,
)
from amqp_agents.protocol.json_values import check_json
from amqp_agents.protocol.reading import (
    OTHER_NAMES,
    check_readable,
    invalid,
    normalised,
    split_unknown,
)
from amqp_agents.protocol.taxonomy import MessageType, RecipientMode
from amqp_agents.protocol.times import iso, utc_now

DEFAULT_TTL = 300


class ReplyFields(TypedDict, total=False):
    """What a reply may say beside its payload; None is as good as absent."""

    type: str | None
    intent: str | None
    payload_schema: str | None
    evidence_refs: Sequence[str]
    ttl: int | None
    timestamp: datetime | None


class AgentMessage(BaseModel):
    """One message from one agent to others.

    A sender needs `sender` and one of `message_type` and `type`; the rest follows or has a
    default. Constructing is strict (an unknown name is an error), `read` is tolerant.

    Units: `ttl` seconds, None never expires; `deadline_ms` milliseconds; `priority` 1 to 10,
        1 is most urgent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    message_id: ShortText = ""
    correlation_id: ShortText = ""
    trace_id: Annotated[str, Field(min_length=1)] = ""
    task_id: str | None = None
    context_id: str | None = None
    sender: AgentRef
    sender_role: str | None = None
    recipient: AgentRef | None = None
    recipient_mode: RecipientMode = RecipientMode.DIRECT
    message_type: MessageType = MessageType.EVENT
    type: ShortText = ""
    intent: str | None = None
    payload: dict[str, Any] = Field(default_factory=dict)
    evidence_refs: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    timestamp: Moment = Field(default_factory=utc_now)
    ttl: Annotated[Whole, Field(ge=0, le=LARGEST)] | None = DEFAULT_TTL
    deadline_ms: Annotated[Whole, Field(gt=0, le=LARGEST)] | None = None
    priority: Annotated[Whole, Field(ge=1, le=10)] = 5
    requires_response: bool = Field(default=False, strict=True)
    causality: Causality = Causality()
    policy: Policy = Policy()
    protocol_version: Version = "1.0"
    schema_version: Version = "1.0"
    payload_schema: str | None = None
    compatible_with: list[str] = Field(default_factory=list)
    idempotency_key: str | None = None
    payload_digest: str | None = None
    digest_scheme: str | None = None
    reply_to: str | None = None
    callback_type: CallbackType = "queue"

    _unknown: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _normalise(cls, given: Any) -> Any:
        return normalised(given) if isinstance(given, Mapping) else given

    @field_serializer("timestamp")
    def _write_timestamp(self, moment: datetime) -> str:
        return iso(moment)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Read a message off the wire; fields of a later version are ignored, and kept.

        Raises: InvalidPayloadError naming the fields, SchemaMismatchError listing what is
            accepted.
        """
        if not isinstance(data, Mapping):
            raise InvalidPayloadError("not an agent message: expected a JSON object")
        check_readable(data)
        known, unknown = split_unknown(data, _KNOWN)
        try:
            message = cls.model_validate(known)
        except ValidationError as error:
            raise invalid(error) from None
        message._unknown = unknown
        return message

    @property
    def created_at(self) -> datetime:
        """The timestamp, under its other name."""
        return self.timestamp

    @property
    def ticket_id(self) -> str | None:
        """The context_id, under its other name."""
        return self.context_id

    @property
    def expires_at(self) -> datetime | None:
        """When `ttl` ends; None for never."""
        if self.ttl is None:
            return None
        try:
            return self.timestamp + timedelta(seconds=self.ttl)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def wire(self) -> dict[str, Any]:
        """Return the body as a dict: no nulls but `ttl`, where null means never expires."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        body = {k: v for k, v in fields.items() if v is not None or k == "ttl"}
        body |= {
            "timestamp": iso(self.timestamp),
            "sender": str(self.sender),
            "recipient_mode": self.recipient_mode.value,
            "message_type": self.message_type.value,
            "causality": self.causality.model_dump(exclude_none=True),
            "policy": self.policy.model_dump(),
        }
        for name, value in self._unknown.items():
            body[name] = {**body[name], **value} if name in body else value
        return body

    def json(self) -> str:  # type: ignore[override]
        """Return the body as JSON text.

        Raises: InvalidPayloadError naming the place that JSON cannot carry.
        """
        body = self.wire()
        check_json(body, at="")
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    def sealed(self) -> "AgentMessage":
        """Return the message with its payload's digest and an idempotency key.

        Raises: InvalidPayloadError naming the place that JSON cannot carry.
        """
        return self.model_copy(
            update={
                "payload_digest": payload_digest(self.payload),
                "digest_scheme": DIGEST_SCHEME,
                "idempotency_key": self.idempotency_key or self.message_id,
            }
        )

    def reply(
        self,
        payload: Mapping[str, Any],
        *,
        sender: AgentRef | str,
        error: bool = False,
        **fields: Unpack[ReplyFields],
    ) -> "AgentMessage":
        """Build the answer to this message: addressed to its sender, in the same trace.

        It lives at least as long as the requester waits, whatever `ttl` says; without a
        `timestamp` it is dated by the machine's clock.
        """
        inherited = {name: getattr(self, name) for name in _INHERITED}
        given = {name: value for name, value in fields.items() if value is not None}
        parent, step = self.message_id, self.causality.step_id
        return AgentMessage.model_validate(
            inherited
            | given
            | {
                "sender": sender,
                "recipient": self.sender,
                "recipient_mode": RecipientMode.DIRECT,
                "message_type": MessageType.ERROR if error else MessageType.RESPONSE,
                "payload": dict(payload),
                "causality": Causality(parent_message_id=parent, step_id=step),
                "ttl": self._reply_ttl(fields.get("ttl")),
            }
        )

    def _reply_ttl(self, ttl: int | None) -> int:
        patience = math.ceil((self.deadline_ms or 0) / 1000)
        return max(DEFAULT_TTL if ttl is None else ttl, patience)


_INHERITED = (
    "correlation_id",
    "trace_id",
    "task_id",
    "context_id",
    "intent",
    "priority",
    "policy",
)
_KNOWN: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((*AgentMessage.model_fields, *OTHER_NAMES), frozenset()),
    "causality": frozenset(Causality.model_fields),
    "policy": frozenset((*Policy.model_fields, "ttl_seconds")),
}


class HybridMessage(BaseModel):
    """A message together with where, and how, its answer is delivered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: AgentMessage
    reply_to: str | None = None
    callback_type: CallbackType = "queue"

    def to_message(self) -> AgentMessage:
        """Return the message with the answer's address in its own fields."""
        return self.base.model_copy(
            update={"reply_to": self.reply_to, "callback_type": self.callback_type}
        )
