"""A complete set of published logs with the ledger that its controller and job would have written."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import set_of_logs as sets

from orchestrator.onnode.kernel import records
from orchestrator.onnode.kernel.files import HERE
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, SetRecord, SubmissionRecord
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.set import bundle, ledger


class Then(World):
    """The time of what is recorded."""

    def __init__(self) -> None:
        self.ms = 0

    def wall_ms(self) -> int:
        return self.ms


def recorded_set(log_dir: Path, contents: list[bytes], *, edit_after: int = 0) -> Path:
    """A set whose runs are `contents`; its bundle was edited, with a word, after run `edit_after`."""
    root = sets.make_set(log_dir, contents, nexp=len(contents))
    declare(root)
    record_runs(root, range(1, len(contents) + 1), edit_after=edit_after)
    keep_heads(root)
    return root


def declare(root: Path) -> None:
    """Make the bundle's manifest, declare the set, and submit its job."""
    outputs = {
        name: sha for name, sha in bundle.hashes(root / "bundle").items() if name != bundle.MANIFEST
    }
    manifest = json.dumps({"outputs": outputs}).encode()
    (root / "bundle" / bundle.MANIFEST).write_bytes(manifest)
    members = json.loads((root / "set.json").read_text())
    members["bundle_sha256"] = hashlib.sha256(manifest).hexdigest()
    first = json.loads((root / "runs/1/attempt_1/state.json").read_text())
    members["created_ms"] = first["start_ms"] - 60_000
    (root / "set.json").write_text(json.dumps(members))
    record = records.read(SetRecord, root / "set.json")
    assert isinstance(record, SetRecord)
    world = Then()
    world.ms = record.created_ms
    ledger.append(root, ledger.declaration(record, root, root.stat().st_ino), world=world)
    asked = {"number": 1, "state": "submitted", "job_id": "7"}
    head = ledger.append(root, ("submit", asked), world=world)
    kept = environment(root)
    job = {"job_id": "7", "restart": 0, "environment": kept, "edited": {}, "program": ""}
    ledger.append(root, ("job", job), job="7", world=world)
    submission = SubmissionRecord(**asked, requested_ms=record.created_ms, ledger=head)  # type: ignore[arg-type]
    records.write(submission, root / "submissions/1.json")


def environment(root: Path, more: bytes = b"") -> str:
    """Write what the job's runs had as environment; return its hash."""
    text = b'declare -x LEARNING_RATE="0.001"\n' + more
    (root / "environment.sh").write_bytes(text)
    (root / "jobs/7.env.gz").write_bytes(gzip.compress(text, mtime=0))
    return hashlib.sha256(text).hexdigest()


def record_runs(root: Path, runs: range, *, edit_after: int = 0) -> None:
    """Record the attempts of runs, their ends and results."""
    world = Then()
    for run in runs:
        for folder in sorted((root / f"runs/{run}").glob("attempt_*")):
            state = records.read(RunRecord, folder / "state.json")
            assert isinstance(state, RunRecord)
            world.ms = state.start_ms
            ledger.append(root, ledger.attempt_started(state), job="7", world=world)
            world.ms = state.end_ms
            ledger.append(root, ledger.attempt_ended(state), job="7", world=world)
        said = ledger.published(root / f"runs/{run}/result_{run}.txt", run, state.attempt, 0, HERE)
        ledger.append(root, said, job="7", world=world)
        if run == edit_after:
            edit(root, world=world)


def edit(root: Path, text: str = "export LEARNING_RATE=99\n", world: World = THIS) -> None:
    """Edit the bundle's config and accept it, as `resume --edited` does. "": put it back."""
    [config] = (root / "bundle").glob("config_*.sh")
    whole = config.read_text().replace("export LEARNING_RATE=99\n", "") + text
    config.write_text(whole)
    now = bundle.changed(bundle.hashes(root / "bundle"), root / "bundle")
    ledger.append(root, ("edit", {"files": now}), world=world)


def keep_heads(root: Path) -> None:
    """Have the job's record know the ledger as it is."""
    job = records.read(JobRecord, root / "jobs/7.json")
    assert isinstance(job, JobRecord)
    members = json.loads((root / "jobs/7.json").read_text())
    members["ledger"] = ledger.head(ledger.read(root)[0])
    (root / "jobs/7.json").write_text(json.dumps(members))
