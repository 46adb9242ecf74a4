"""Two namings of what a message is, and how one follows from the other.

`message_type` is the closed delivery pattern, `type` the open, dotted business kind.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class MessageType(StrEnum):
    """How a message is delivered and whether someone waits for an answer."""

    DIRECT = "direct"
    BROADCAST = "broadcast"
    REQUEST = "request"
    RESPONSE = "response"
    ERROR = "error"
    HEARTBEAT = "heartbeat"
    EVENT = "event"


class RecipientMode(StrEnum):
    """How the recipients of a message are found."""

    DIRECT = "direct"
    BROADCAST = "broadcast"
    SUBSCRIBE = "subscribe"
    CAPABILITY = "capability"


_MESSAGE_TYPES: Mapping[str, MessageType] = MappingProxyType(
    {
        "task.request": MessageType.REQUEST,
        "task.result": MessageType.RESPONSE,
        "event": MessageType.EVENT,
        "action.preview": MessageType.EVENT,
        "action.result": MessageType.EVENT,
        "approval.decision": MessageType.RESPONSE,
        "task.cancelled": MessageType.BROADCAST,
        "task.error": MessageType.ERROR,
        "agent.heartbeat": MessageType.HEARTBEAT,
        "message": MessageType.DIRECT,
        "announcement": MessageType.BROADCAST,
    }
)
_WHEN_ADDRESSED: Mapping[str, MessageType] = MappingProxyType(
    {"action.preview": MessageType.REQUEST, "task.cancelled": MessageType.DIRECT}
)
_TYPES: Mapping[MessageType, str] = MappingProxyType(
    {
        MessageType.DIRECT: "message",
        MessageType.BROADCAST: "announcement",
        MessageType.REQUEST: "task.request",
        MessageType.RESPONSE: "task.result",
        MessageType.ERROR: "task.error",
        MessageType.HEARTBEAT: "agent.heartbeat",
        MessageType.EVENT: "event",
    }
)
_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {name.replace(".", "_"): name for name in _MESSAGE_TYPES if "." in name}
    | {"task.canceled": "task.cancelled", "task_canceled": "task.cancelled"}
)


def canonical_type(name: str) -> str:
    """Return the dotted spelling of a known type; leave any other name as it is.

    >>> canonical_type("task_request"), canonical_type("invoice.paid")
    ('task.request', 'invoice.paid')
    """
    return _SPELLINGS.get(name, name)


def message_type_of(name: str, *, addressed: bool) -> MessageType:
    """Return how a message of type `name` is delivered; an unknown type is an event.

    >>> message_type_of("action.preview", addressed=True).value
    'request'
    >>> message_type_of("invoice.paid", addressed=True).value
    'event'
    """
    if addressed and name in _WHEN_ADDRESSED:
        return _WHEN_ADDRESSED[name]
    return _MESSAGE_TYPES.get(name, MessageType.EVENT)


def type_of(message_type: MessageType) -> str:
    """Return the type of a message that only says how it is delivered.

    >>> type_of(MessageType.REQUEST)
    'task.request'
    """
    return _TYPES[message_type]


def recipient_mode_of(message_type: MessageType, *, addressed: bool) -> RecipientMode:
    """Return how recipients are found when the sender did not say.

    >>> recipient_mode_of(MessageType.EVENT, addressed=False).value
    'subscribe'
    """
    if addressed:
        return RecipientMode.DIRECT
    if message_type in (MessageType.EVENT, MessageType.HEARTBEAT):
        return RecipientMode.SUBSCRIBE
    return RecipientMode.BROADCAST
