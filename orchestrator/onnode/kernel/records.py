"""The small JSON files of a set as typed records, written atomically (docs/set-folder.md).

Reading never raises: a missing file is None, an unusable file a Finding.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from .files import HERE, Files, PathLike, linked, raise_if_away
from .plural import count
from .walk import place_of, problem, read_object

if TYPE_CHECKING:
    from .walk import WalkedFiles

SCHEMA = 1
REHEARSAL = "rehearsal"
"""`created_by` of a simulated set."""
NO_GPU = "none"
"""`gpu_model` of a set without GPUs."""
LIMIT = 1 << 53
"""Larger numbers are damage."""


class Finding(NamedTuple):
    """An unusable file, and why."""

    path: Path
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, eq=False, repr=False)
class StateFile:
    """A kind of record. Members' types: keys of _ACCEPTED; NEEDED members are required.

    All kinds share its `==` and `repr`: a cold `status` would compile them for each.
    """

    NEEDED: ClassVar[tuple[str, ...]] = ()
    SELDOM: ClassVar[tuple[str, ...]] = ()
    """Written only if not empty."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


R = TypeVar("R", bound=StateFile)


@dataclass(frozen=True, eq=False, repr=False)
class SetRecord(StateFile):
    """set.json. `created_ms`: Unix milliseconds; `run_timeout_s`: seconds; `unmet`: missing parts
    of the published configuration."""

    NEEDED = ("set_id", "nexp", "scheduler")
    SELDOM = ("label", "gpu_model")

    schema: int = SCHEMA
    set_id: str = ""
    label: str = ""
    """For people."""
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
    """GPUs of a node; without GPUs its processes."""
    gpu_model: str = ""
    """NO_GPU without GPUs; "" in older sets."""
    engine: str = ""
    image: str = ""
    max_attempts: int = 0
    run_timeout_s: int = 0
    target: float | None = None
    metric: str = ""
    target_is_upper_bound: bool = False
    bundle_sha256: str = ""
    pass_env: list[str] = field(default_factory=list)
    unmet: list[str] = field(default_factory=list)

    @property
    def rehearsed(self) -> bool:
        return self.created_by == REHEARSAL

    @property
    def each(self) -> str:
        """A node's GPUs as text: `8 GPUs`; without GPUs, `2 processes`."""
        return count(self.gpus_per_node, "process" if self.gpu_model == NO_GPU else "GPU")


@dataclass(frozen=True, eq=False, repr=False)
class SubmissionRecord(StateFile):
    """submissions/<k>.json: a request to the scheduler, written before it and with its outcome."""

    NEEDED = ("number", "state")

    schema: int = SCHEMA
    number: int = 0
    job_name: str = ""
    requested_ms: int = 0
    state: str = ""
    job_id: str = ""
    argv: list[str] = field(default_factory=list)
    error: str = ""
    cancelled_ms: int = 0
    by: dict[str, Any] = field(default_factory=dict)
    """The submitter, as in a lease."""
    ledger: str = ""
    """The ledger's head before the request."""

    @property
    def settled(self) -> bool:
        """The scheduler's decision is known."""
        return self.state in ("submitted", "refused")


@dataclass(frozen=True, eq=False, repr=False)
class JobRecord(StateFile):
    """jobs/<job id>.json: the loop's record."""

    NEEDED = ("job_id", "state")
    SELDOM = ("groups", "edited")
    FINAL = frozenset({"complete", "cancelled", "time_limit", "paused", "failed"})

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
    """Waiting spare nodes."""
    set_aside: list[dict[str, Any]] = field(default_factory=list)
    """Excluded nodes, by their name in the file."""
    warnings: list[str] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    """Side by side: `nodes`, `run`, `attempt` per group (0: between runs)."""
    ledger: str = ""
    """The ledger's head when written."""
    edited: list[str] = field(default_factory=list)
    """Files with accepted edits."""

    @property
    def final(self) -> bool:
        return self.state in self.FINAL


@dataclass(frozen=True, eq=False, repr=False)
class RunRecord(StateFile):
    """state.json of a run or an attempt."""

    NEEDED = ("run", "state")
    SELDOM = ("inside",)

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
    inside: dict[str, Any] = field(default_factory=dict)
    """Content of the containers at its end: node (* for most) -> part -> hash."""

    @property
    def done(self) -> bool:
        """The result is final."""
        return self.state == "success" or (
            self.state == "failed" and self.outcome == "not_converged"
        )


@dataclass(frozen=True, eq=False, repr=False)
class NodeRunRecord(StateFile):
    """node_<rank>.json of an attempt: its end on a node. `drift`: host settings that did not hold.

    `container_run`: number of the run in its container (0: unknown). `cache`: compile caches at its
    start (agent/scratch.py), or {}. `transport`: processes with RDMA (`rdma`) or another network
    (`other`, with the first `line`).
    """

    NEEDED = ("node", "exit")
    SELDOM = ("inside",)

    node: str = ""
    rank: int = 0
    exit: int = -1
    start_ms: int = 0
    end_ms: int = 0
    drift: list[dict[str, Any]] = field(default_factory=list)
    container_run: int = 0
    cache: dict[str, Any] = field(default_factory=dict)
    inside: dict[str, Any] = field(default_factory=dict)
    """Content of its container at the end: part -> hash."""
    transport: dict[str, Any] = field(default_factory=dict)


_ACCEPTED: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float | None": (int, float, type(None)),
    "list[str]": (list,),
    "list[dict[str, Any]]": (list,),
    "dict[str, int]": (dict,),
    "dict[str, Any]": (dict,),
}
_SHAPES: dict[type[StateFile], dict[str, str]] = {}
"""Kind -> member -> type."""


def read(
    kind: type[R], path: PathLike, files: WalkedFiles = HERE, *, strict: bool = False
) -> R | Finding | None:
    """Return a record, or None without a file. Unknown members are ignored.

    `strict`: raise OSError if the storage does not answer.
    """
    try:
        data = read_object(path, files.read_bytes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        if strict:
            raise_if_away(path, error)
        return Finding(Path(place_of(path, error)), problem(error))
    shape, values = _fitting(kind, data)
    misfit = _problem(kind, shape, values)
    return Finding(Path(path), misfit) if misfit else kind(**values)


def checked(kind: type[R], data: dict[str, Any]) -> R | None:
    """Return a record like `read`, None if invalid."""
    shape, values = _fitting(kind, data)
    return None if _problem(kind, shape, values) else kind(**values)


def _fitting(kind: type[StateFile], data: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    shape = _SHAPES.get(kind) or _SHAPES.setdefault(
        kind, {item.name: str(item.type) for item in fields(kind)}
    )
    return shape, {name: value for name, value in data.items() if name in shape}


def _problem(kind: type[StateFile], shape: dict[str, str], values: dict[str, Any]) -> str:
    for name, value in values.items():
        if not (type(value) is str and shape[name] == "str") and (
            problem := _misfit(value, shape[name])
        ):
            return f"`{name}` {problem}"
    if "\0" in values.get("job_id", ""):
        return "`job_id` holds a NUL"
    missing = [name for name in kind.NEEDED if name not in values]
    if missing:
        return f"lacks `{'`, `'.join(missing)}`"
    if values.get("schema", SCHEMA) > SCHEMA:
        return f"was written by a newer version (schema {values['schema']}, known: {SCHEMA})"
    return ""


def _misfit(value: Any, word: str) -> str:
    """`word`: a type of _ACCEPTED."""
    fits = isinstance(value, _ACCEPTED[word]) and (type(value) is not bool or word == "bool")
    if not fits:
        return f"is {json.dumps(value)[:40]}, not {word}"
    if isinstance(value, (int, float)) and not abs(value) < LIMIT:
        return "is no number that can be counted with"
    if word == "list[str]" and not all(isinstance(item, str) for item in value):
        return "holds something else than text"
    if word == "dict[str, int]" and not all(
        type(number) is int and abs(number) < LIMIT for number in value.values()
    ):
        return "holds something else than whole numbers"
    return ""


def write(
    record: StateFile,
    path: PathLike,
    *,
    sync: bool = True,
    new: bool = False,
    files: Files = HERE,
) -> None:
    """Write atomically, replacing a link, or with `new` nothing. Raises OSError."""
    values = {
        name: value for name, value in vars(record).items() if value or name not in record.SELDOM
    }
    replace(path, (json.dumps(values, indent=1) + "\n").encode(), sync=sync, new=new, files=files)


def write_bytes(path: PathLike, content: bytes, *, sync: bool = True) -> None:
    """Replace a whole file, through a link; write to a device or pipe. Raises OSError, and leaves
    nothing.

    Without `sync` the content may be lost with the machine, but never half.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC), "wb") as file:
            os.set_blocking(file.fileno(), True)
            file.write(content)
        return
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    replace(target, content, sync=sync)


def replace(
    path: PathLike,
    content: bytes,
    *,
    sync: bool = True,
    new: bool = False,
    files: Files = HERE,
) -> None:
    """Replace `path`, or with `new` create it, through a temporary name. Raises OSError."""
    temporary = files.temporary(path)
    try:
        files.create(temporary, content, sync=sync)
        if not new:
            _put(temporary, path, content, files)
        elif linked(temporary, path, files):
            files.remove(temporary)
        else:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        if sync:
            files.sync_folder(os.path.dirname(path) or ".")
    except OSError:
        files.remove(temporary)
        raise


def _put(temporary: str, path: PathLike, content: bytes, files: Files) -> None:
    try:
        files.rename(temporary, path)
    except FileNotFoundError:  # perhaps the answer to a second request: the first reply was lost
        if files.read_bytes(path) != content:
            raise
