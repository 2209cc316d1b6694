"""A set's logs, in a folder of result files or a set folder (docs/set-folder.md)."""

from __future__ import annotations

import os

from orchestrator.errors import InputError
from orchestrator.mllog.olympic import DONE, LOST
from orchestrator.onnode.kernel.walk import MOST_RUNS, FilesInside, SetWalk, problem
from orchestrator.words import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from orchestrator.onnode.kernel.regular import PathLike
    from orchestrator.onnode.set.ledger import LedgerRecord

REHEARSAL = "rehearsal"
"""`created_by` of a simulated set, and `metadata.file` of its logs' records."""
REHEARSED = "rehearsal: no training ran; all times are simulated"
STAND_IN = (
    "stand-in: these runs rehearse the benchmark with a small workload; they are no result of it"
)


def bundle_problem(root: str, sha256: str) -> str:
    """Return why the declared bundle (`sha256`) of the set in `root` is unusable, or ""."""
    if not sha256 or os.path.isdir(os.path.join(root, "bundle")):
        return ""
    return "is missing; the set cannot continue, and nothing shows how its runs were started"


def why_no_result(*, rehearsed: bool, stand_in: bool) -> str:
    """Return why a valid score is no result of the benchmark, or ""."""
    if rehearsed:
        return "no training ran"
    return "a small stand-in workload ran" if stand_in else ""


class RunFile:
    """A log that counts as a run. `name` is for messages.

    `number` and the given `seed` come from a set folder; None for other logs.
    """

    __slots__ = ("name", "number", "path", "seed")

    def __init__(
        self, path: str, name: str, number: int | None = None, seed: int | None = None
    ) -> None:
        self.path = path
        self.name = name
        self.number = number
        self.seed = seed


class Source:
    """The content of a folder. `described` is set.json, {} for a plain folder."""

    __slots__ = (
        "_results",
        "_workload",
        "awaited",
        "described",
        "directory",
        "edits",
        "files",
        "inside",
        "pending",
        "refused",
        "remarks",
        "unscored",
        "walk",
    )

    def __init__(self, directory: str, files: list[RunFile], *, is_set: bool = False) -> None:
        self.directory = directory
        self.files = files
        self.described: dict[str, Any] = {}
        self.unscored: list[dict[str, Any]] = []
        """Attempts that failed because of the infrastructure."""
        self.pending: list[int] = []
        """Runs of a set folder without a result so far."""
        self.awaited: list[int] = []
        """Those with attempts left."""
        self.refused: list[str] = []
        """Why no score can be valid, whatever the logs contain."""
        self.edits: dict[int, dict[str, str]] = {}
        """Run -> accepted edits of the bundle that it ran with, file -> hash."""
        self.remarks: list[str] = []
        """Further remarks about its records, unusable files among them."""
        self.inside = FilesInside(directory if is_set else "")
        """Its files; a plain folder may have links."""
        self.walk = SetWalk(directory, self.inside, self._remark)
        self._results = SetWalk(directory, self.inside, self._refuse)
        self._workload: dict[str, Any] | None = None

    def _remark(self, path: PathLike, error: Exception) -> None:
        _add(self.remarks, f"{os.path.relpath(path, self.directory)}: {problem(error)}")

    def _refuse(self, path: PathLike, error: Exception) -> None:
        _add(self.refused, f"{os.path.relpath(path, self.directory)}: {problem(error)}")

    def result(self, number: int) -> str:
        """Return the path of a run's result, "" if missing. An unusable file refuses the score."""
        path = f"{self.walk.run(number)}/result_{number}.txt"
        return path if self._results.has_file(path) else ""

    @property
    def is_set(self) -> bool:
        return bool(self.described)

    @property
    def rehearsed(self) -> bool:
        """Return whether the set was simulated: nothing of it ran."""
        return self.described.get("created_by") == REHEARSAL

    @property
    def workload(self) -> dict[str, Any]:
        """Return bundle/workload.json, the workload's part about scores and logs, or {}."""
        if self._workload is None:
            self._workload = (
                self.walk.json(f"{self.directory}/bundle/workload.json") if self.is_set else {}
            )
        return self._workload


def _add(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)


def find_source(directory: str) -> Source:
    """Find the logs in `directory`. Raises InputError without any."""
    directory = os.path.abspath(directory)
    if not os.path.isdir(directory):
        raise InputError(
            f"{directory}: "
            f"{'this is a file' if os.path.exists(directory) else 'there is no such folder'}",
            hint="give a folder with result_*.txt files, or a set folder",
        )
    if any(os.path.isfile(os.path.join(directory, name)) for name in ("set.json", "ledger.jsonl")):
        return _set_folder(directory)
    return _plain_folder(directory)


def _plain_folder(directory: str) -> Source:
    try:
        names = sorted(os.listdir(directory), key=natural)
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}") from error
    results = [
        name for name in names if name.startswith("result_") and name.endswith((".txt", ".txt.gz"))
    ]
    chosen = results or [
        name for name in names if name.endswith((".log", ".log.gz")) and not name.startswith(".")
    ]
    files = [
        RunFile(os.path.join(directory, name), name)
        for name in chosen
        if os.path.isfile(os.path.join(directory, name))
    ]
    if not files:
        raise InputError(
            f"{directory}: no result_*.txt or *.log file in this folder",
            hint=_where_else(directory, names),
        )
    return Source(directory, files)


def _where_else(directory: str, names: list[str]) -> str:
    for name in names:
        below = os.path.join(directory, name)
        if os.path.isdir(below) and any(entry.startswith("result_") for entry in os.listdir(below)):
            return f"orchestrator score {quoted(below)}"
    return "give the folder that holds the logs of one set, or a set folder (it has a set.json)"


def natural(name: str) -> tuple[str, int, str]:
    """Return a sort key that puts result_10 after result_9."""
    stem = name.split(".", 1)[0]
    digits = stem[len(stem.rstrip("0123456789")) :]
    return stem.rstrip("0123456789"), int(digits[:18] or -1), name


def _set_folder(directory: str) -> Source:
    source = Source(directory, [], is_set=True)
    on_record = _on_record(source)
    source.described = source.walk.json(f"{directory}/set.json") or on_record.get("set", {})
    if not source.described:
        raise InputError(
            f"{os.path.join(directory, 'set.json')}: this is not a set's description",
            hint=(
                "a set folder is made by `orchestrator submit`; for other logs give a folder "
                "without set.json"
            ),
        )
    for number in _run_numbers(source):
        _add_run(source, number)
    if edits := on_record.get("edits"):
        source.edits = {run.number: edits.get(run.number, {}) for run in source.files if run.number}
        first, *others = source.edits.values() or ({},)
        if first and all(edits_of_run == first for edits_of_run in others):
            names = file_names(first)
            source.remarks.append(f"the bundle was edited before the first run: {names}")
    if lost := bundle_problem(directory, str(source.described.get("bundle_sha256") or "")):
        source.remarks.append(f"bundle/ {lost}")
    runs, nexp = on_record.get("runs", 0), on_record.get("set", {}).get("nexp", 0)
    if runs > nexp:
        source.remarks.append(
            f"{runs} runs are recorded, {nexp} declared: this set was chosen from more runs"
        )
    if not source.files and not source.pending and not source.unscored:
        raise InputError(
            f"{directory}: the set has no runs yet",
            hint=f"orchestrator status {quoted(os.path.basename(directory))}",
        )
    return source


def read_description(directory: str) -> dict[str, Any]:
    """Return set.json, {} if it is missing or unusable."""
    walk = SetWalk(directory, FilesInside(directory), lambda *_: None)
    return walk.json(f"{directory}/set.json")


def _on_record(source: Source) -> dict[str, Any]:
    """Return the ledger's declaration (`set`), number of started runs (`runs`) and their accepted
    edits (`edits`), or {}."""
    directory = source.directory
    if not os.path.isfile(os.path.join(directory, "ledger.jsonl")):
        return {}
    from pathlib import Path

    from orchestrator.onnode.set import ledger

    try:
        entries, _ = ledger.read(Path(directory), source.inside)
    except OSError as error:
        source._remark(os.path.join(directory, ledger.NAME), error)
        return {}
    record = ledger.declared(entries)
    if record is None:
        return {}
    runs = {str(entry.data.get("run")) for entry in entries if entry.kind == "attempt"}
    return {"set": vars(record), "runs": len(runs), "edits": _edits(source, entries)}


def file_names(edits: dict[str, str]) -> str:
    """Return the edited files for people."""
    names = sorted(edits)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _edits(source: Source, entries: list[LedgerRecord]) -> dict[int, dict[str, str]]:
    """Return run -> edits accepted before its counting attempt; {} for an unedited bundle."""
    from orchestrator.onnode.set.bundle import accepted

    if not any(entry.kind == "edit" for entry in entries):
        return {}
    by_run: dict[int, dict[str, str]] = {}
    edits: dict[str, str] = {}
    counted: dict[object, object] = {}
    for entry in entries:
        run = entry.data.get("run")
        if entry.kind == "edit":
            edits = accepted([entry])
        elif entry.kind == "attempt" and isinstance(run, int):
            if run not in counted:
                state = source.walk.json(f"{source.walk.run(run)}/state.json")
                counted[run] = state.get("attempt")
            if entry.data.get("attempt") == counted[run] or run not in by_run:
                by_run[run] = edits
    return by_run


def _run_numbers(source: Source) -> list[int]:
    wanted = source.described.get("nexp")
    declared = wanted if isinstance(wanted, int) and 0 < wanted <= MOST_RUNS else 0
    return sorted({*range(1, declared + 1), *source.walk.runs()})


def _add_run(source: Source, number: int) -> None:
    state = source.walk.json(f"{source.walk.run(number)}/state.json")
    lost = state.get("outcome") in LOST
    path = source.result(number)
    attempts = [
        (attempt, source.walk.json(f"{source.walk.attempt(number, attempt)}/state.json"))
        for attempt in source.walk.attempts(number)
    ]
    source.unscored += _lost(attempts, number)
    done = [attempt for attempt, state in attempts if state.get("outcome") in DONE]
    if path and not lost:
        seed = state.get("seed")
        known = isinstance(seed, int) and seed > 0
        source.files.append(RunFile(path, os.path.basename(path), number, seed if known else None))
    else:
        source.pending.append(number)
        most = source.described.get("max_attempts")
        if not _is_given_up([state for _, state in attempts], most):
            source.awaited.append(number)
    if len(done) > 1:
        source.refused.append(
            f"run {number} has results of attempts {', '.join(map(str, done))}: which one counts "
            "must not be chosen"
        )


def _is_given_up(states: Sequence[Mapping[str, Any]], most: object) -> bool:
    """Return whether a run without a result has used up its attempts: `most` in one job
    (onnode/policy/queue.py). `states`: of all its attempts."""
    if not all(state.get("outcome") for state in states):
        return False  # an attempt is running
    job = states[-1].get("job_id") if states else None
    died = sum(
        state["outcome"] == "infrastructure" and state.get("job_id") == job for state in states
    )
    return isinstance(most, int) and 0 < most <= died


def _lost(
    attempts: Iterable[tuple[int, Mapping[str, Any]]], number: int
) -> Iterator[dict[str, Any]]:
    """Yield the lost attempts of a run."""
    for _, state in attempts:
        if state.get("outcome") in LOST:
            yield {
                "run": number,
                "attempt": state.get("attempt"),
                "outcome": state["outcome"],
                "reason": state.get("reason", ""),
            }
