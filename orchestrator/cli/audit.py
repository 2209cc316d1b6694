"""Verify a set: one answer, one exit code.

  ledger      the set is compared with its ledger: changed, dropped, moved or inserted records and
              files are named
  replay      the decisions of its jobs are repeated from their event files: eligible nodes, their
              ranks, the outcome of an attempt and its blame. The same events give the same
              decisions
  compliance  its logs are checked against the round's rules, and against its environment and
              descriptor, as `score --compliance` does

--only selects parts; it may be repeated. The head covers all records of the ledger: the report, the
package, every notification, a job's comment in Slurm and the last line of its output have it. The
last two are compared as far as they are there; --head gives a head that was kept elsewhere. Without
any the ledger is compared only with itself. A clock set back by more than a day is only a note.

example:
  orchestrator audit                                 # the newest set
  orchestrator audit MI325X_08x08x32-flux1-20261121 --json
  orchestrator audit SET --only ledger --head "31 5f0c..."
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_json, add_set, add_text
from orchestrator.cli.command import Command
from orchestrator.cli.finding import folders
from orchestrator.cli.output import print_json
from orchestrator.errors import ExitCode, OrchestratorError, UsageError
from orchestrator.words import clean, count, quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from orchestrator.evidence.ledger import Anchor
    from orchestrator.evidence.replay import Replay
    from orchestrator.onnode.kernel.walk import FilesInside

    Part = tuple[bool, list[str], dict[str, Any]]
    """(Nothing is wrong, lines for people, JSON members)."""


ITSELF = (
    "compared only with itself: a user who can write all of its files can make them anew; "
    "a head kept elsewhere (--head) would show it"
)


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser)
    add_json(parser)
    parser.add_argument(
        "--only",
        choices=tuple(PARTS),
        action="append",
        default=[],
        help="this part; may be repeated (default: all)",
    )
    add_text(parser, "--head", "HEAD", "a head kept elsewhere: `<number> <hash>`")


def run(args: Namespace) -> int:
    chosen = [name for name in PARTS if name in args.only or not args.only]
    if args.head and "ledger" not in chosen:
        raise UsageError("--head is about the ledger", hint="leave --only out")
    root = _root(args)
    done = {name: PARTS[name](root, args) for name in chosen}
    valid = all(is_valid for is_valid, _, _ in done.values())
    if args.json and len(chosen) == 1:
        print_json(KINDS.get(chosen[0], chosen[0]), done[chosen[0]][2])
    elif args.json:
        parts = {name: members for name, (_, _, members) in done.items()}
        print_json("audit", {"set": str(root), "valid": valid, **parts})
    else:
        for _, lines, _ in done.values():
            print("\n".join(lines))
        if len(chosen) > 1:
            wrong = [name for name, (is_valid, _, _) in done.items() if not is_valid]
            print(f"problems: {', '.join(wrong)}" if wrong else f"valid: {', '.join(chosen)}")
    return ExitCode.OK if valid else ExitCode.NO_SCORE


def _root(args: Namespace) -> Path:
    from orchestrator.evidence.sets import is_set

    [folder] = folders([args.set] if args.set else [], args.site)
    if not is_set(Path(folder)):
        raise UsageError(
            f"{folder} is not a set", hint=f"orchestrator score --compliance {quoted(folder)}"
        )
    return Path(folder)


def _ledger(root: Path, args: Namespace) -> Part:
    from orchestrator.evidence.ledger import Anchor, Mismatch, verify
    from orchestrator.onnode.set import ledger

    verdict = verify(root, _comments(root))
    problems, compared = list(verdict.problems), list(verdict.compared)
    if args.head and verdict.heads:
        compared.append(Anchor("head", "", args.head))
        if args.head not in verdict.heads:
            problem = f"no record is {args.head}: its content of then was changed"
            problems.append(Mismatch(0, ledger.NAME, problem))
    lines = [
        *map(str, problems),
        *(f"note: clock: {item}" for item in verdict.clock),
        *["note: the last line was never finished; the next record covers it"] * verdict.torn,
        *[f"note: this is a copy of {verdict.copy_of}"] * bool(verdict.copy_of),
    ]
    counted = f"{count(verdict.records, 'record')}, {count(len(problems), 'problem')}"
    sources = ", ".join(dict.fromkeys(map(str, compared)))
    if verdict.heads:
        lines.append(f"ledger: compared with {sources}" if sources else f"ledger: {ITSELF}")
    lines.append(f"ledger: {counted}; head {verdict.head}")
    outcome = {
        "problems": [item.to_json() for item in problems],
        "compared": [anchor._asdict() for anchor in compared],
        "valid": not problems,
    }
    return not problems, lines, {"set": str(root), **verdict.to_json(), **outcome}


def _comments(root: Path) -> list[Anchor]:
    """Return the ledger heads still in Slurm's comments on a set's jobs."""
    from orchestrator.evidence.ledger import Anchor, marked
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.scheduler import open_scheduler
    from orchestrator.scheduler.kinds import kind_of

    evidence = SetEvidence(root)
    if evidence.record is None or not kind_of(evidence.record.scheduler).allocates:
        return []
    comments = open_scheduler(evidence.record.scheduler).comments(
        evidence.record.job_name, (job.job_id for job in evidence.jobs)
    )
    return [
        Anchor("job comment", job_id, head)
        for job_id, text in comments.items()
        for head in marked(text)
    ]


def _replay(root: Path, args: Namespace) -> Part:
    from orchestrator.evidence.files import Findings

    findings = Findings(root)
    replays = {
        name.removeprefix("events-").removesuffix(".tsv"): _replayed(root / name, findings.inside)
        for name in findings.names(root)
        if name.startswith("events-") and name.endswith(".tsv")
    }
    lines = []
    for job, replayed in replays.items():
        differing = len(replayed.differences)
        agree = f"{differing} differ" if differing else "all identical"
        if replayed.reworded:
            agree += f", {replayed.reworded} in other words (of another version)"
        lines.append(f"replay of job {job}: {count(replayed.decisions, 'decision')}, {agree}")
        lines += [f"  {difference}" for difference in replayed.differences]
    if not replays:
        lines.append(f"replay: no job of {root.name} has an event file")
    # Event files behind the limit of a folder's names would not be replayed.
    lines += [f"replay: {finding}" for finding in findings]
    jobs = {
        job: {
            "decisions": outcome.decisions,
            "differences": [str(difference) for difference in outcome.differences],
            "reworded": outcome.reworded,
        }
        for job, outcome in replays.items()
    }
    is_valid = not findings and not any(replayed.differences for replayed in replays.values())
    members = {"set": str(root), "jobs": jobs, "problems": [str(finding) for finding in findings]}
    return is_valid, [clean(text) for text in lines], members


def _replayed(path: Path, files: FilesInside) -> Replay:
    from orchestrator.evidence.events import read_events
    from orchestrator.evidence.replay import replay

    try:
        return replay(read_events(path, files))
    except OSError as error:
        raise UsageError(
            f"{quoted(path)} cannot be read: {error.strerror or error}",
            hint=f"ls -ld {quoted(path)}",
        ) from error


def _compliance(root: Path, args: Namespace) -> Part:
    from orchestrator.cli.compliance import document, is_clean
    from orchestrator.mllog.score import score_dir
    from orchestrator.views.score import check_text

    try:
        score = score_dir(str(root))
    except OrchestratorError as error:
        if args.only:
            raise
        # Verify the records even if the set has no result yet.
        return False, [f"compliance: {error.message}"], {"error": error.message}
    *findings, summary = check_text(score).split("\n")
    return is_clean(score), [*findings, f"compliance: {summary}"], document(score)


PARTS: dict[str, Callable[[Path, Namespace], Part]] = {
    "ledger": _ledger,
    "replay": _replay,
    "compliance": _compliance,
}
KINDS = {"compliance": "check"}
"""Part -> kind of output, if named differently."""

COMMAND = Command(
    "audit",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "nothing is wrong (warnings of compliance included)",
        ExitCode.NO_SCORE: "a record, a decision or a log is not as it should be",
    },
)
