"""The environment of a set's runs as it was evaluated, with each variable's place in the bundle and its origin."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from orchestrator.onnode.environment import parse, shown
from orchestrator.report.model import Variable

LARGEST = 1 << 20
_EXPORT = re.compile(r"^\s*export ([A-Za-z_]\w*)=")


def evaluated(root: Path) -> dict[str, str]:
    """The values in a set's environment.sh; {} when there is none."""
    return {name: shown(value) for name, value in parse(read_text(root / "environment.sh")).items()}


def read_text(path: Path) -> str:
    """The beginning of a text file, at most LARGEST bytes; "" when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def read_environment(root: Path) -> tuple[tuple[Variable, ...], str]:
    """(variables by name, a note about what is known of their origins)"""
    values = evaluated(root)
    if not values:
        return (), "the set has no environment.sh yet"
    places = _places(root / "bundle")
    origins, note = _origins(root / "bundle")
    return tuple(
        Variable(name, value, places.get(name, ""), origins.get(name, "")) for name, value in sorted(values.items())
    ), note


def _places(bundle: Path) -> dict[str, str]:
    """Name -> `file:line` in the bundle that sets it last."""
    found = {}
    names = sorted(path.name for path in bundle.glob("config_*.sh")) if bundle.is_dir() else []
    for name in [*names, "rccl_env.sh"]:
        for number, line in enumerate(read_text(bundle / name).splitlines(), 1):
            if match := _EXPORT.match(line):
                found[match.group(1)] = f"{name}:{number}"
    return found


def _origins(bundle: Path) -> tuple[dict[str, str], str]:
    """Return name -> `layer: file:line` as the bundle has it on record, and a note where more is to be said."""
    lines = read_text(bundle / "origins.tsv").splitlines()
    if not lines:
        return {}, "who set which variable is not on record: the bundle was made before that was written down"
    rows = [cells for line in lines[1:] if len(cells := line.split("\t")) == 5]
    origins = {name: f"{layer}: {file}:{line}" if line else layer for name, layer, file, line, _ in rows}
    edited = _edited(bundle)
    note = f"edited after the bundle was made, so a value may be another one: {', '.join(edited)}" if edited else ""
    return origins, note


def _edited(bundle: Path) -> list[str]:
    """Return the files of the environment that are no more what the manifest says."""
    try:
        made = dict(json.loads(read_text(bundle / "manifest.json"))["outputs"])
        names = sorted(name for name in made if name == "rccl_env.sh" or name.startswith("config_"))
        return [name for name in names if hashlib.sha256((bundle / name).read_bytes()).hexdigest() != made[name]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
