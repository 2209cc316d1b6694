"""The corpus of labelled failures (tests/data/failures), as set folders, and how `explain` does on it.

A case begins with `=== name label`; its parts with `--- node RANK [exit=CODE] [s=SECONDS]` (a node's log), `--- job` (what the job
printed), `--- aside NODE KIND` (why a node was set aside), `--- slurm STATE` (squeue's reason), `--- refused` (sbatch's error),
`--- line` (the deciding line). Labels that are equally right are separated by `/`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.evidence.explain import explain
from orchestrator.evidence.explanation import Explanation
from orchestrator.evidence.picture import picture
from orchestrator.evidence.progress import Logs
from orchestrator.evidence.sets import SetEvidence
from orchestrator.scheduler.job import Job

FOLDER = Path(__file__).resolve().parents[1] / "data/failures"
JOB = "4411"
STARTED = 1_790_000_000_000


@dataclass
class Case:
    """One failure: its label is the name of the first cause, or `unknown`; several, separated by `/`."""

    name: str
    label: str
    nodes: dict[int, tuple[dict[str, int], str]] = field(default_factory=dict)
    """rank -> (exit and seconds, log)"""
    job: str = ""
    aside: list[tuple[str, str, str]] = field(default_factory=list)
    slurm: tuple[str, str] = ("", "")
    refused: str = ""
    line: str = ""
    """The deciding line, "" if it is not labelled."""

    @property
    def labels(self) -> list[str]:
        return self.label.split("/")


def cases(name: str) -> list[Case]:
    """Return the cases of a file of the corpus."""
    text = (FOLDER / f"{name}.txt").read_text()
    return [_case(part) for part in ("\n" + text).split("\n=== ")[1:]]


def _case(text: str) -> Case:
    head, *parts = ("\n" + text).split("\n--- ")
    case = Case(*head.strip().split("\n")[0].split())
    for part in parts:
        first, _, body = part.partition("\n")
        kind, *words = first.split()
        if kind == "node":
            about = {name: int(value) for name, value in (word.split("=") for word in words[1:])}
            case.nodes[int(words[0])] = (about, body + "\n")
        elif kind == "job":
            case.job = body + "\n"
        elif kind == "aside":
            case.aside.append((words[0], words[1], body.strip()))
        elif kind == "line":
            case.line = body.strip()
        elif kind == "slurm":
            case.slurm = (words[0], body.strip())
        else:
            assert kind == "refused", first
            case.refused = body.strip()
    return case


def make_set(root: Path, case: Case) -> SetEvidence:
    """Write the folder of a set that ended as the case tells."""

    def put(name: str, value: dict[str, Any]) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(json.dumps(value, indent=1))

    put(
        "set.json",
        {
            "set_id": "s",
            "nexp": 10,
            "scheduler": "slurm",
            "job_name": "orch-s",
            "nodes": len(case.nodes) or 2,
        },
    )
    asked = {
        "number": 1,
        "requested_ms": STARTED,
        "state": "submitted",
        "job_id": JOB,
        "job_name": "orch-s",
    }
    put(
        "submissions/1.json",
        asked | ({"state": "refused", "job_id": "", "error": case.refused} if case.refused else {}),
    )
    names = [f"n{rank}" for rank in range(max(case.nodes, default=1) + 1)]
    if case.job:
        (root / f"job_{JOB}.out").write_text(case.job)
    if case.nodes or case.aside:
        state = "running" if case.slurm[0] else "paused" if case.nodes else "failed"
        job = {
            "job_id": JOB,
            "state": state,
            "reason": "see the nodes",
            "nodes": names,
            "started_ms": STARTED + 1000,
            "run": 1,
            "attempt": 1,
        }
        put(f"jobs/{JOB}.json", job | ({} if case.slurm[0] else {"ended_ms": STARTED + 900_000}))
    if case.nodes:
        codes = {f"n{rank}": about.get("exit", -1) for rank, (about, _) in case.nodes.items()}
        run = {
            "run": 1,
            "attempt": 1,
            "job_id": JOB,
            "nodes": names,
            "start_ms": STARTED + 2000,
            "exit_codes": codes,
        }
        ended = {
            "state": "failed",
            "outcome": "infrastructure",
            "reason": "no run_stop",
            "end_ms": STARTED + 800_000,
        }
        for name in ("runs/1/state.json", "runs/1/attempt_1/state.json"):
            put(name, run | ended)
    for rank, (about, log) in case.nodes.items():
        (root / f"runs/1/attempt_1/node_{rank}.log").write_text(log)
        times = {"start_ms": STARTED + 2000, "end_ms": STARTED + 2000 + 1000 * about.get("s", 100)}
        put(
            f"runs/1/attempt_1/node_{rank}.json",
            {"node": f"n{rank}", "rank": rank, "exit": about.get("exit", -1), **times},
        )
    rows = [
        f"{STARTED + 5000}\tloop\taside\t{node}\t{kind}\x1f{text}\x1f0\x1f0\n"
        for node, kind, text in case.aside
    ]
    if rows:
        (root / f"events-{JOB}.tsv").write_text("".join(rows))
    return SetEvidence(root)


def explained(root: Path, case: Case) -> Explanation:
    """Return what is said of the case when it is a set in the folder `root`."""
    make_set(root, case)
    return of_set(root, case)


def of_set(root: Path, case: Case) -> Explanation:
    """Return what is said of the set folder of a case."""
    files = SetEvidence(root)
    jobs = {JOB: Job(JOB, "orch-s", case.slurm[0], case.slurm[1])} if case.slurm[0] else {}
    if case.job and not case.slurm[0]:
        jobs = {JOB: Job(JOB, "orch-s", "FAILED", "NonZeroExitCode")}
    return explain(files, picture(files, jobs, Logs()))


def score(folder: Path, name: str) -> tuple[int, list[tuple[Case, Explanation]]]:
    """Return how many cases of a file there are, and those that come out otherwise than labelled."""
    found = cases(name)
    wrong = []
    for case in found:
        said = explained(folder / name / case.name, case)
        if said.cause not in case.labels:
            wrong.append((case, said))
    return len(found), wrong
