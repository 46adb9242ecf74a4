"""What is said: the envelope, its payloads, and how they become bytes and properties."""

from amqp_agents.protocol.agent_ref import AgentRef
from amqp_agents.protocol.codec import CONTENT_TYPE, decode, encode
from amqp_agents.protocol.digest import DIGEST_SCHEME, canonical_json, payload_digest
from amqp_agents.protocol.envelope import AgentMessage, HybridMessage
from amqp_agents.protocol.error_payload import (
    ErrorPayload,
    error_of,
    error_payload_of,
    read_error_payload,
)
from amqp_agents.protocol.fields import Causality, Policy
from amqp_agents.protocol.lifetime import CLOCK_HEADER, remaining_seconds
from amqp_agents.protocol.limits import WireLimits, carriable, check_body, check_properties
from amqp_agents.protocol.selection import matches, project
from amqp_agents.protocol.taxonomy import MessageType, RecipientMode

__all__ = [
    "CLOCK_HEADER",
    "CONTENT_TYPE",
    "DIGEST_SCHEME",
    "AgentMessage",
    "AgentRef",
    "Causality",
    "ErrorPayload",
    "HybridMessage",
    "MessageType",
    "Policy",
    "RecipientMode",
    "WireLimits",
    "canonical_json",
    "carriable",
    "check_body",
    "check_properties",
    "decode",
    "encode",
    "error_of",
    "error_payload_of",
    "matches",
    "payload_digest",
    "project",
    "read_error_payload",
    "remaining_seconds",
]
