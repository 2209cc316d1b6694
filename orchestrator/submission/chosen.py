"""The submitted runs of a set: all, or a longer set's median window."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InputError
from orchestrator.evidence.ledger import head_of, verify
from orchestrator.evidence.sets import entry_of
from orchestrator.mllog.blocks import open_log
from orchestrator.mllog.score import score_dir
from orchestrator.mllog.shipped import OWN
from orchestrator.mllog.source import Source, find_source
from orchestrator.mllog.window import launch_order
from orchestrator.onnode.kernel.records import SetRecord
from orchestrator.onnode.kernel.walk import ANY, FilesInside
from orchestrator.onnode.set.ledger import NAME
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.mllog.result import RunScore, Score


@dataclass(frozen=True, slots=True)
class Chosen:
    """The packaged runs of a set in launch order: result_0.txt, result_1.txt, ..."""

    source: Source
    score: Score
    runs: list[RunScore]
    problems: list[str]
    ledger_problems: list[str]
    """Differences between the set and its ledger."""
    has_own_rules: bool
    """It is no MLPerf benchmark: its other members do not matter here."""

    @property
    def root(self) -> Path:
        return Path(self.source.directory)

    @property
    def way_to_real_runs(self) -> str:
        """Return the remedy if no benchmark ran, or ""."""
        described = self.source.described
        if not self.score.no_result:
            return ""
        record = SetRecord(
            system=str(described.get("system") or "SYSTEM"),
            workload=str(described.get("workload") or "WORKLOAD"),
            round=str(described.get("round") or ""),
        )
        entry = " ".join(map(quoted, entry_of(record)))
        run = f"orchestrator run {entry}"
        if self.score.rehearsed:
            return f"{run} makes a set of real runs"
        return (
            "replace it by the published image, then run the set again: orchestrator images pull "
            f"{entry} --always && orchestrator images distribute {entry} && " + run
        )

    @property
    def way_to_more_runs(self) -> str:
        """Return the command for missing runs, or ""."""
        required, declared = self.score.runs_required, self.source.described.get("nexp")
        has_enough = len(self.score.runs) >= required and not self.score.awaited
        if not isinstance(declared, int) or has_enough:
            return ""
        command = f"orchestrator resume {quoted(self.root)}"
        return f"{command} --nexp {required}" if declared < required else command

    def record(self) -> dict[str, Any]:
        """Return runs.json: all runs, with the reason for their use."""
        score, used = self.score, {run.file: index for index, run in enumerate(self.runs)}
        ordered = launch_order(score.runs)
        return {
            "set": self.source.described.get("set_id") or self.root.name,
            "benchmark": score.benchmark,
            "round": score.ruleset,
            "rule": "exactly the required number of consecutive runs in launch order (run_start); "
            "of more runs, "
            "the window whose score is the median of all windows",
            "nexp": self.source.described.get("nexp"),
            "pending": score.pending,
            "runs_on_record": len(score.runs),
            "runs_used": len(self.runs),
            "runs": [
                {
                    "result": f"result_{used[run.file]}.txt" if run.file in used else None,
                    "file": run.file,
                    "run_start_ms": run.start,
                    "minutes": run.minutes,
                    "samples": run.samples,
                    "seed": run.seed,
                    "status": run.status,
                    "use": run.use,
                    "why": _why(run, used, score),
                }
                for run in ordered
            ],
            "attempts_not_scored": score.unscored,
            "window": score.window,
            "score_minutes": score.minutes,
            "olympic_mean_minutes": score.olympic_mean,
            "normalization_factor": score.factor,
            "notes": score.notes,
            "ledger": head_of(self.root),
            "ledger_problems": self.ledger_problems,
            "differences": [finding.to_json() for finding in score.differences],
        }


def _why(run: RunScore, used: dict[str, int], score: Score) -> str:
    if run.file not in used:
        return "outside the median window"
    return "in the median window" if score.window else "all runs of the set are used"


def choose(directory: str, *, ruleset: str = "") -> Chosen:
    """Score a set and select its runs. Raises InputError for unusable logs."""
    source = find_source(directory)
    score = score_dir(source, ruleset=ruleset, window=True)
    root = Path(source.directory)
    has_own_rules = OWN in (score.ruleset, source.described.get("ruleset"))
    has_ledger = source.is_set and (root / NAME).exists()
    return Chosen(
        source,
        score,
        runs=[run for run in launch_order(score.runs) if run.use != "outside"],
        problems=[f"{directory}: {text}" for text in _problems(source, score, has_own_rules)],
        ledger_problems=list(map(str, verify(root).problems)) if has_ledger else [],
        has_own_rules=has_own_rules,
    )


def _problems(source: Source, score: Score, has_own_rules: bool) -> Iterator[str]:
    if why := score.no_result:
        image = source.described.get("image")
        why += f" (image {image})" if image and not score.rehearsed else ""
        yield f"this is a rehearsal: {why}, and there is nothing to submit"
    if has_own_rules:
        yield (
            f"{score.benchmark} is no MLPerf benchmark: it is scored by its workload's own rules, "
            "and a submission holds results of MLPerf benchmarks only"
        )
    else:
        yield from score.reasons


def content(run: RunScore, limit: int, files: FilesInside = ANY) -> bytes:
    """Return a log's uncompressed bytes, at most `limit` + 1. Raises InputError."""
    try:
        with open_log(run.path, files) as log:
            kept = bytearray()
            # An unbuffered file may return less than requested.
            while len(kept) <= limit and (piece := log.read(limit + 1 - len(kept))):
                kept += piece
            return bytes(kept)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{run.path}: cannot be read: {error}") from error
