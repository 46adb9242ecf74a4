"""What the command line says about an error: one sentence that names the mend, no traceback."""

import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import typer

from amqp_agents.errors import (
    AgentCommunicationError,
    AgentError,
    ErrorCode,
    OutcomeUnknownError,
    RequestTimeoutError,
)
from amqp_agents.protocol.error_payload import text_of

# The class all usage errors share has no public name in every version of typer.
UsageFault = cast(type[Exception], typer.BadParameter.__mro__[2])

_PASSWORD = re.compile(r"""(\b[a-z][a-z0-9+.-]*://[^\s/@:"']*):[^\s"']*@""", re.IGNORECASE)
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = ("site-packages", "dist-packages", f"{Path(traceback.__file__).parent}")


def redacted(text: str) -> str:
    """Return the text with the password of every URL in it hidden.

    >>> redacted("cannot reach amqp://guest:secret@rabbit/")
    'cannot reach amqp://guest:***@rabbit/'
    """
    return _PASSWORD.sub(r"\1:***@", text)


def printable(text: str) -> str:
    r"""Return the text without control characters, which could take over a terminal.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\n'
    """
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def sentences_of(error: BaseException) -> tuple[str, ...]:
    """Return what to say about an error, each thing once; a group says what all of it says.

    >>> sentences_of(RequestTimeoutError("quality_agent", timeout_seconds=5))[0][:48]
    "no answer from 'quality_agent' within 5 s; is it"
    """
    told = (_sentence(each) for each in _leaves(error))
    return tuple(dict.fromkeys(printable(redacted(sentence)) for sentence in told))


def error_json(error: BaseException) -> dict[str, Any]:
    """Return the error for programs."""
    first = next(_leaves(error))
    code = first.code if isinstance(first, AgentError) else ErrorCode.UNKNOWN
    told: dict[str, Any] = {
        "type": "UsageError" if isinstance(first, UsageFault) else type(first).__name__,
        "code": code.value,
        "message": "; ".join(sentences_of(error)),
        "retryable": isinstance(first, AgentError) and bool(first.retryable),
    }
    if isinstance(first, AgentCommunicationError):
        told |= {
            "failed_agent": first.failed_agent,
            "suggested_retry_after": first.suggested_retry_after,
        }
    return {"error": told}


def place_of(error: BaseException, trace: TracebackType | None = None) -> str | None:
    """Return file:line of the last line of the user's own code the error came through."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{_short(error.filename)}:{error.lineno or 1}"
    frames = traceback.extract_tb(trace if trace is not None else error.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    return f"{_short(own[-1].filename)}:{own[-1].lineno}" if own else None


def last_line(error: BaseException) -> str:
    """Return what a traceback would end with; of an error of ours only its sentence."""
    if isinstance(error, AgentError):
        return text_of(error)
    return traceback.format_exception_only(error)[-1].strip()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _sentence(error: BaseException) -> str:
    if isinstance(error, UsageFault):
        return _usage(error)
    if isinstance(error, AgentError):
        hint = _hint(error)
        return f"{text_of(error)}; {hint}" if hint else text_of(error)
    place = place_of(error)
    return f"{last_line(error)} ({place})" if place else last_line(error)


def _usage(error: Any) -> str:
    """Say what is wrong about the command, what was meant, and where its help is."""
    said = re.sub(r" \(Possible options: .*\)$", "", error.format_message()).rstrip(".")
    meant: Sequence[str] = getattr(error, "possibilities", None) or ()
    if meant and "Did you mean" not in said:
        said += f". Did you mean {' or '.join(sorted(meant))}?"
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "amqp-agents"
    return f"{said}{' ' if said.endswith('?') else '; '}see '{command} --help'"


def _hint(error: AgentError) -> str | None:
    """What an operator can do that the error itself, made for programs, does not say."""
    if isinstance(error, RequestTimeoutError):
        return (
            f"is it running ('amqp-agents run')? did it give up ('amqp-agents dlq list "
            f"{error.target}')? or allow more time with --timeout"
        )
    if isinstance(error, OutcomeUnknownError):
        return "it may have arrived: look before you send it again"
    if isinstance(error, AgentCommunicationError):
        return _answer_hint(error)
    return None


def _answer_hint(error: AgentCommunicationError) -> str:
    if error.suggested_retry_after is not None:
        return f"call again in {error.suggested_retry_after} s"
    if error.code in (ErrorCode.INVALID_PAYLOAD, ErrorCode.SCHEMA_MISMATCH):
        return "correct what was sent, then call again"
    return f"see 'amqp-agents dlq list {error.failed_agent}' and the log of that agent"


def _is_users(filename: str) -> bool:
    frozen = filename.startswith("<frozen")
    installed = any(part in filename for part in _INSTALLED)
    return not frozen and not installed and not Path(filename).is_relative_to(_PACKAGE)


def _short(filename: str) -> str:
    path = Path(filename)
    inside = path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if inside else filename
