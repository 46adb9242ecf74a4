"""Which room may know which: the contracts in pyproject.toml hold."""

import subprocess
import sys
import tomllib
from pathlib import Path

import amqp_agents

ROOT = Path(__file__).parents[2]
PACKAGE = Path(amqp_agents.__file__).parent


def test_every_import_obeys_the_layers() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [lint, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_room_has_a_layer_and_every_layer_is_a_room() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = [
        contract
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    placed = {name.strip() for layer in layers["layers"] for name in layer.split(":")}
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists())
        and path.stem not in ("__init__", *layers["exhaustive_ignores"])
    }
    assert placed == rooms
