"""Names of exchanges and queues, and the rules for agent ids, made in one place."""

import re

from amqp_agents.errors import ConfigurationError

DIRECT = "agent.direct"
EVENTS = "agent.events"
DLX = "agent.dlx"
LOST = "agent.lost"
DELAY = "agent.delay"
DELAY_EXIT = "agent.delay.exit"
SUBSCRIPTIONS = "agent.subscriptions"
REPLY = "agent.reply"
CONTROL = "agent.control"

DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
OWNER = "amqp_agents"

_EXCHANGE_WORDS = ("direct", "events", "dlx", "delay", "subscriptions", "control", "switch")
RESERVED_IDS = frozenset(("lost", "journal", "reply", *_EXCHANGE_WORDS))
AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
INTENT_WORD = re.compile(r"[^\s.*#]+|[*#]")
KEY_BYTES = 255


def checked_agent_id(name: str) -> str:
    """Return `name` if an agent may be called so.

    Ids are words of routing keys: letters, digits, `_` and `-`, at most 64, no dots.

    Raises: ConfigurationError naming the rule.

    >>> checked_agent_id("quality_agent")
    'quality_agent'
    """
    if not isinstance(name, str) or AGENT_ID.fullmatch(name) is None:
        raise ConfigurationError(
            f"agent id {name!r} must be 1 to 64 letters, digits, '_' or '-' (no dots or spaces)"
        )
    if name in RESERVED_IDS:
        raise ConfigurationError(
            f"agent id {name!r} is reserved; reserved are: {', '.join(sorted(RESERVED_IDS))}"
        )
    return name


def checked_intent_pattern(pattern: str) -> str:
    """Return `pattern` if a topic exchange can match intents with it.

    Words are joined by dots; `*` stands for one whole word, `#` for any number of them.

    Raises: ConfigurationError naming the rule.

    >>> checked_intent_pattern("ticket.*")
    'ticket.*'
    """
    words = pattern.split(".")
    if not all(INTENT_WORD.fullmatch(word) for word in words):
        raise ConfigurationError(
            f"intent {pattern!r} must be words joined by dots, without spaces;"
            " '*' (one word) and '#' (any number of words) stand alone between the dots"
        )
    if len(event_key(pattern, broadcast=True).encode()) > KEY_BYTES:
        raise ConfigurationError(f"intent {pattern[:40]!r}… is longer than a routing key")
    return pattern


def checked_intent(intent: str) -> str:
    """Return `intent` if an event or a broadcast can carry it: words joined by dots.

    Raises: ConfigurationError naming the rule.

    >>> checked_intent("ticket.closed")
    'ticket.closed'
    """
    if {"*", "#"} & set(intent.split(".")):
        raise ConfigurationError(
            f"{intent!r} is a pattern; publish one intent, such as ticket.closed"
        )
    return checked_intent_pattern(intent)


def inbox(agent: str) -> str:
    """Return the queue an agent's messages arrive in.

    >>> inbox("quality_agent")
    'agent.quality_agent'
    """
    return f"agent.{agent}"


def dead_letter_queue(agent: str) -> str:
    """Return where messages end that the agent could not handle.

    >>> dead_letter_queue("quality_agent")
    'agent.quality_agent.dlq'
    """
    return f"agent.{agent}.dlq"


def delay_level(level: int) -> str:
    """Return the name shared by the exchange and the queue that hold for 2**level seconds.

    >>> delay_level(3)
    'agent.delay.v1.3'
    """
    return f"agent.delay.v1.{level}"


def reply_queue(instance: str) -> str:
    """Return the reply queue of one client instance, which is also its reply address.

    >>> reply_queue("3f2a")
    'agent.reply.3f2a'
    """
    return f"{REPLY}.{instance}"


def event_key(intent: str | None, *, broadcast: bool = False) -> str:
    """Return the routing key of an event or a broadcast on `agent.events`.

    >>> event_key("ticket.closed"), event_key(None, broadcast=True)
    ('event.ticket.closed', 'broadcast')
    """
    kind = "broadcast" if broadcast else "event"
    return kind if intent is None else f"{kind}.{intent}"


def topic_matches(pattern: str, key: str) -> bool:
    """Return whether a topic binding matches a routing key: `*` is one word, `#` any number.

    >>> topic_matches("ticket.*", "ticket.closed"), topic_matches("ticket.#", "ticket")
    (True, True)
    >>> topic_matches("*", "ticket.closed"), topic_matches("#.closed", "closed")
    (False, True)
    """
    words = key.split(".") if key else []
    reached = {0}  # how many words of the key the pattern so far can have taken
    for word in pattern.split("."):
        if word == "#":
            reached = set(range(min(reached, default=len(words) + 1), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and word in ("*", words[at])}
    return len(words) in reached
