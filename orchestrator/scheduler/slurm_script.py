"""The #SBATCH options of a job script, and those that replace them."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """Nodes in Slurm's short form; `minutes` is 0 for another limit, `nodes` for another form."""

    exclude: str = ""
    nodelist: str = ""
    minutes: int = 0
    nodes: int = 0
    partition: str = ""


def options_in(script: str) -> ScriptOptions:
    return ScriptOptions(
        exclude=_option(script, "exclude", r"\S+"),
        nodelist=_option(script, "nodelist", r"\S+"),
        minutes=int(_option(script, "time", "[0-9]+") or 0),
        nodes=int(_option(script, "nodes", "[0-9]{1,6}") or 0),
        partition=_option(script, "partition", r"\S+"),
    )


def _option(script: str, name: str, value: str) -> str:
    match = re.search(rf"^#SBATCH --{name}=({value})$", script, re.MULTILINE)
    return match[1] if match else ""


def replacing(
    *, nodes: int = 0, time: str = "", exclude: list[str], nodelist: list[str]
) -> list[str]:
    """Return command-line options, which win over the script's; 0, "" and [] keep those."""
    values = {
        "nodes": str(nodes or ""),
        "time": time,
        "exclude": ",".join(exclude),
        "nodelist": ",".join(nodelist),
    }
    return [f"--{name}={value}" for name, value in values.items() if value]
