"""A request for a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Submitter:
    user: str = "root"
    uid: int = 0
    host: str = ""


@dataclass(frozen=True)
class BatchScript:
    path: Path = Path()
    argv: tuple[str, ...] = ()
    text: str = ""
    """At submission: Slurm runs that copy."""
    workdir: str = ""
    submit_dir: str = ""
    """Of sbatch."""
    output: str = ""
    append: bool = False


@dataclass(frozen=True)
class SlurmRequest:
    """Times are Unix milliseconds, 0 if unknown."""

    name: str
    submitter: Submitter = Submitter()
    script: BatchScript = BatchScript()
    env: Mapping[str, str] = field(default_factory=dict)
    partition: str = ""
    nodes: int = 1
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    time_limit_s: float | None = None
    dependency: tuple[tuple[str, str], ...] = ()
    """Such as ("afterok", "17")."""
    begin_ms: int = 0
    no_kill: bool = False
    requeue: bool = True
    warning: tuple[bool, int, float] | None = None
    """--signal: batch script alone, number, seconds before the limit."""
    held: str = ""
    """The displayed reason."""
    comment: str = ""
    other: bool = False
    """Another user's, which only occupies nodes."""
    priority: int = 0
