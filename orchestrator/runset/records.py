"""The JSON files of a set as typed records, and writing them so that no reader ever sees half of one.

Reading never raises: a file that is missing gives None, one that cannot be used gives a Finding.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that could not be used, and why."""

    path: Path
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, slots=True)
class SetRecord:
    """set.json: what the set is. `created_ms` is Unix milliseconds, `run_timeout_s` seconds."""

    NEEDED: ClassVar[tuple[str, ...]] = ("set_id", "nexp", "scheduler")

    schema: int = SCHEMA
    set_id: str = ""
    system: str = ""
    workload: str = ""
    benchmark: str = ""
    round: str = ""
    ruleset: str = ""
    nexp: int = 0
    root_seed: int = 0
    created_ms: int = 0
    created_by: str = ""
    job_name: str = ""
    scheduler: str = ""
    nodes: int = 0
    gpus_per_node: int = 0
    engine: str = ""
    image: str = ""
    max_attempts: int = 0
    run_timeout_s: int = 0
    target: float | None = None
    metric: str = ""
    target_is_upper_bound: bool = True
    bundle_sha256: str = ""
    pass_env: list[str] = field(default_factory=list)
    """Names of the caller's variables that each job of the set needs."""


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """submissions/<k>.json: one request to the scheduler, written before it is made and again with its outcome."""

    NEEDED: ClassVar[tuple[str, ...]] = ("number", "state")

    schema: int = SCHEMA
    number: int = 0
    job_name: str = ""
    requested_ms: int = 0
    state: str = ""
    job_id: str = ""
    argv: list[str] = field(default_factory=list)
    error: str = ""
    cancelled_ms: int = 0

    @property
    def settled(self) -> bool:
        """Whether it is known if the scheduler took it."""
        return self.state in ("submitted", "refused")


@dataclass(frozen=True, slots=True)
class SetAside:
    """A node that the loop stopped using: why, and during which run and attempt (0: before the first)."""

    node: str
    reason: str = ""
    run: int = 0
    attempt: int = 0
    time_ms: int = 0

    @property
    def when(self) -> str:
        return f"run {self.run}, attempt {self.attempt}" if self.run else "before the first run"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """jobs/<job id>.json: the loop's own word on one job."""

    NEEDED: ClassVar[tuple[str, ...]] = ("job_id", "state")
    FINAL: ClassVar[frozenset[str]] = frozenset({"complete", "cancelled", "time_limit", "paused", "failed"})

    schema: int = SCHEMA
    job_id: str = ""
    state: str = ""
    reason: str = ""
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    updated_ms: int = 0
    ended_ms: int = 0
    nodes: list[str] = field(default_factory=list)
    run: int = 0
    attempt: int = 0
    image_digest: str = ""
    engine: str = ""
    spares: list[str] = field(default_factory=list)
    """Nodes of the allocation that wait to take the place of another one."""
    set_aside: list[dict[str, Any]] = field(default_factory=list)
    """As it stands in the file; `aside` is what can be used of it."""
    warnings: list[str] = field(default_factory=list)

    @property
    def final(self) -> bool:
        return self.state in self.FINAL

    @property
    def aside(self) -> list[SetAside]:
        return [one for item in self.set_aside if (one := _set_aside(item)) is not None]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """runs/<i>/state.json, and the same of each attempt."""

    NEEDED: ClassVar[tuple[str, ...]] = ("run", "state")

    schema: int = SCHEMA
    run: int = 0
    attempt: int = 0
    state: str = ""
    outcome: str = ""
    reason: str = ""
    seed: int = 0
    job_id: str = ""
    master_port: int = 0
    nodes: list[str] = field(default_factory=list)
    exit_codes: dict[str, int] = field(default_factory=dict)
    image_digest: str = ""
    start_ms: int = 0
    end_ms: int = 0

    @property
    def done(self) -> bool:
        """It has a result that counts: nothing will run it again."""
        return self.state == "success" or (self.state == "failed" and self.outcome == "not_converged")


def _set_aside(item: object) -> SetAside | None:
    if not isinstance(item, dict) or not isinstance(item.get("node"), str):
        return None
    numbers = {name: value for name in ("run", "attempt", "time_ms") if type(value := item.get(name)) is int}
    reason = item.get("reason")
    return SetAside(item["node"], reason if isinstance(reason, str) else "", **numbers)


Record = TypeVar("Record", SetRecord, SubmissionRecord, JobRecord, RunRecord)

_ACCEPTED: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float | None": (int, float, type(None)),
    "list[str]": (list,),
    "list[dict[str, Any]]": (list,),
    "dict[str, int]": (dict,),
}


@cache
def _shape(kind: type) -> dict[str, tuple[tuple[type, ...], str]]:
    return {item.name: (_ACCEPTED[str(item.type)], str(item.type)) for item in fields(kind)}


def read(kind: type[Record], path: Path | str) -> Record | Finding | None:
    """The record in `path`; None without such a file; a Finding when it cannot be used. Ignores unknown members."""
    try:
        with open(path, "rb") as file:
            data = json.loads(file.read().decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        return Finding(Path(path), f"cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON
        return Finding(Path(path), f"is no JSON: {error}")
    if not isinstance(data, dict):
        return Finding(Path(path), "is not a JSON object")
    return _build(kind, data, path)


def _build(kind: type[Record], data: dict[str, Any], path: Path | str) -> Record | Finding:
    values: dict[str, Any] = {}
    # A class is hashable; mypy looks at its instances.
    shape = _shape(kind)  # type: ignore[arg-type]
    for name, value in data.items():
        if name not in shape:
            continue
        types, word = shape[name]
        if not isinstance(value, types) or ((value is True or value is False) and bool not in types):
            return Finding(Path(path), f"`{name}` is {json.dumps(value)[:40]}, not {word}")
        if word == "list[str]" and not all(isinstance(one, str) for one in data[name]):
            return Finding(Path(path), f"`{name}` holds something else than text")
        values[name] = value
    missing = [name for name in kind.NEEDED if name not in values]
    if missing:
        return Finding(Path(path), f"lacks `{'`, `'.join(missing)}`")
    if values.get("schema", SCHEMA) > SCHEMA:
        return Finding(Path(path), f"was written by a newer version (schema {values['schema']}, known: {SCHEMA})")
    return kind(**values)


def write(record: SetRecord | SubmissionRecord | JobRecord | RunRecord, path: Path) -> None:
    """Write `record` to `path` through a temporary file in the same folder, synced and renamed. Raises OSError."""
    write_bytes(path, (json.dumps(asdict(record), indent=1) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content` as a whole. Raises OSError and leaves nothing behind then.

    What a link points to is replaced, not the link; a device or a pipe is written to.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    path = path.resolve() if path.is_symlink() else path
    temporary = path.with_name(f".{path.name}.tmp.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def numbered(folder: Path, suffix: str = ".json") -> list[int]:
    """The numbers k of the files or folders `<k><suffix>` in `folder`, rising."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal() and len(stem) < 10)
