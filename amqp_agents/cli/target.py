"""From what a user names to an app or a topology: `module:app`, or a YAML file."""

import difflib
import importlib
import operator
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from amqp_agents.app import AgentApp
from amqp_agents.cli.error_text import last_line, place_of
from amqp_agents.errors import ConfigurationError
from amqp_agents.topology.layout import standard_topology
from amqp_agents.topology.load import load_topology
from amqp_agents.topology.model import Topology

DEFAULT_FILE = Path("topology/agents.yaml")
DEFAULT_ATTRIBUTE = "app"
YAML_ENDINGS = (".yaml", ".yml")


class Stopped(SystemExit):
    """A signal came while the user's module was imported."""


class _UsersImport:
    """Around the import of the user's module: what it raises becomes one sentence."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception | SystemExit) or isinstance(error, Stopped):
            return
        if isinstance(error, ModuleNotFoundError) and _names(error.name, self._module):
            raise _not_found(self._module) from None
        told = last_line(error)
        if isinstance(error, SystemExit):
            told = "it ends the program; put that below if __name__ == '__main__':"
        place = place_of(error, trace) or self._module
        raise ConfigurationError(f"{self._module!r} cannot be imported: {place}: {told}") from error


def load_app(target: str) -> AgentApp:
    """Import `module:app` (or `module` with an attribute `app`) and return the app.

    The working directory is importable.

    Raises: ConfigurationError that says what was found instead.
    """
    name, _, attribute = target.partition(":")
    _check_written_as_module(target, name, attribute)
    module = import_module(name)
    attribute = attribute or DEFAULT_ATTRIBUTE
    try:
        found: Any = operator.attrgetter(attribute)(module)
    except AttributeError:
        raise _no_attribute(module, attribute) from None
    if not isinstance(found, AgentApp):
        raise ConfigurationError(
            f"{name}:{attribute} is a {type(found).__name__}, no AgentApp; "
            f"write {attribute.rpartition('.')[2]} = AgentApp([...]) there{_others(module)}"
        )
    return found


def import_module(name: str) -> ModuleType:
    """Import a module of the user's, also from the working directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    with _UsersImport(name):
        return importlib.import_module(name)


def load_desired(target: str | None) -> Topology:
    """Return the topology of a YAML file or an app; without a target, of the default file.

    Raises: ConfigurationError, TopologyConflictError.
    """
    if target is None:
        if not DEFAULT_FILE.is_file():
            raise ConfigurationError(
                f"nothing says which agents there are: name a YAML file or module:app "
                f"(there is no {DEFAULT_FILE} below {Path.cwd()})"
            )
        target = str(DEFAULT_FILE)
    if target.endswith(YAML_ENDINGS) or (Path(target).is_file() and not target.endswith(".py")):
        return standard_topology(load_topology(target).agents)
    return load_app(target).topology()


def _check_written_as_module(target: str, name: str, attribute: str) -> None:
    if "/" in name or name.endswith(".py"):
        module = name.removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")
        meant = f"{module}:{attribute or DEFAULT_ATTRIBUTE}"
        raise ConfigurationError(f"{target!r} is a path; name the module instead: {meant!r}")
    words = name.split(".") + (attribute.split(".") if attribute else [])
    if not all(word.isidentifier() for word in words):
        raise ConfigurationError(f"{target!r} names no app; write it as module:app")


def _names(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _not_found(module: str) -> ConfigurationError:
    here = Path.cwd()
    known = [path.stem for path in sorted(here.glob("*.py"))]
    known += [path.parent.name for path in sorted(here.glob("*/__init__.py"))]
    close = difflib.get_close_matches(module, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "start it where the module is, or install it"
    return ConfigurationError(f"there is no module {module!r} in {here} or installed; {hint}")


def _no_attribute(module: ModuleType, attribute: str) -> ConfigurationError:
    mend = _others(module) or f"; write {attribute} = AgentApp([...]) there"
    return ConfigurationError(f"module {module.__name__!r} has no {attribute!r}{mend}")


def _others(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, AgentApp)]
    return f"; did you mean {module.__name__}:{apps[0]}?" if apps else ""
