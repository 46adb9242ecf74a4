"""`amqp-agents version`, and `--version`."""

import platform
from importlib.metadata import PackageNotFoundError, version

from amqp_agents.cli.connecting import AsJson
from amqp_agents.cli.examples import with_examples
from amqp_agents.cli.output import say, say_json

DISTRIBUTION = "amqp-agents"
PARTS = ("aio-pika", "pydantic")
HELP = with_examples("Print the versions of what runs here.", "amqp-agents version --json")


def show_version(as_json: AsJson = False) -> None:
    """Print the versions of what runs here."""
    told = versions()
    if as_json:
        say_json(told)
        return
    others = ", ".join(f"{name} {number}" for name, number in told.items() if name != DISTRIBUTION)
    say(f"{DISTRIBUTION} {told[DISTRIBUTION]} ({others})")


def versions() -> dict[str, str]:
    """Return the versions of the package, of Python, and of what a fault may depend on."""
    found = {name: _installed(name) for name in (DISTRIBUTION, *PARTS)}
    return {**found, "python": platform.python_version()}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"
