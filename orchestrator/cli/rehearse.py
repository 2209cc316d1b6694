"""Play a set on a virtual clock, in seconds: what will happen, how long it takes, and what a fault does to it.

The loop, its decisions and the commands are the real ones. Cluster, nodes, storage and trainings are simulated: nothing
is submitted, nothing is written to the site's log directory, and no training runs. Times of runs are drawn from
published results, else estimated. When a job ends with runs missing, the set is resumed after --resume-after.
`orchestrator docs rehearse` lists the faults and the limits of the model.

example:
  orchestrator rehearse MI325X_08x08x32 flux1 --spares 1 --fault 'node 3 dies in run 4'
  orchestrator rehearse MI325X_08x08x32 flux1 --time 8:00:00 --resume-after 2h -o rehearsed
  orchestrator rehearse MI355X_1x8x1 llama31_8b --nexp 3 --faults faults.txt --seed 7
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_entry, add_json, positive
from orchestrator.cli.command import Command
from orchestrator.cli.finding import load_asked, site_log_dir
from orchestrator.errors import ExitCode, OrchestratorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from orchestrator.model import Entry
    from orchestrator.simulation.faults import Fault
    from orchestrator.simulation.rehearsal import Rehearsal, RehearsalPlan

MOST_BYTES = 1 << 20
"""Of a file with faults."""


def add_arguments(parser: ArgumentParser) -> None:
    add_entry(parser)
    parser.add_argument(
        "--time", metavar="TIME", type=time_limit, help="the job's time limit, as for sbatch (default: the site's)"
    )
    parser.add_argument(
        "--cluster", metavar="N", type=positive, help="nodes of the cluster (default: as many as the job asks for)"
    )
    parser.add_argument(
        "--run-time",
        metavar="TIME",
        type=time_span,
        help="how long a usual run takes, such as 95min (default: as published, else estimated)",
    )
    parser.add_argument(
        "--fault",
        metavar="SENTENCE",
        action="append",
        default=[],
        help="what goes wrong, such as 'node 3 dies in run 4' or 'the reservation ends at 8h'; may be repeated",
    )
    parser.add_argument("--faults", metavar="FILE", help="file with one such sentence per line; # begins a comment")
    parser.add_argument("--seed", metavar="N", type=positive, default=1, help="seed of all that is random (default: 1)")
    parser.add_argument(
        "--resume-after",
        metavar="TIME",
        type=time_span,
        default=1800.0,
        help="how long after the end of a job with missing runs the set is resumed, such as 2h (default: 30m)",
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="keep the set's folder as DIR, for status, nodes, explain, score, report"
    )
    add_json(parser)


def time_span(text: str) -> float:
    from orchestrator.simulation.faults import seconds

    try:
        return seconds(text)
    except UsageError as error:
        raise ArgumentTypeError(f"{error.message}; {error.hint}") from None


def time_limit(text: str) -> str:
    from orchestrator.scheduler.slurm_nodes import minutes_of

    try:
        minutes_of(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time such as 480, 8:00:00 or 1-12") from None
    return text


def run(args: Namespace) -> int:
    entry = _entry(args)
    output = _output(args, entry)
    return _one(args, _plan(args, entry), output)


def _entry(args: Namespace) -> Entry:
    """Return the entry of the arguments. Raises UsageError, as `submit` does, for a job that no partition takes."""
    from dataclasses import replace

    from orchestrator.runset.limit import refuse_too_long

    entry = load_asked(args)
    if args.time:
        entry = replace(entry, site=entry.site.model_copy(update={"time_limit": args.time}))
    refuse_too_long(entry, args.nexp or entry.runs_required)
    return entry


def _plan(args: Namespace, entry: Entry) -> RehearsalPlan:
    from orchestrator.simulation.rehearsal import make_plan

    return make_plan(
        entry,
        args.nexp,
        cluster=args.cluster,
        faults=list(_faults(args, entry)),
        seed=args.seed,
        resume_after_s=args.resume_after,
        run_s=args.run_time,
    )


def _faults(args: Namespace, entry: Entry) -> Iterator[Fault]:
    """Yield the faults of the command line, then those of the file. Raises UsageError, for the file with its line."""
    from orchestrator.simulation.faults import parse, refuse_unknown
    from orchestrator.simulation.rehearsal import cluster_nodes

    nodes, runs = cluster_nodes(entry, args.cluster), args.nexp or entry.runs_required
    for text in args.fault:
        yield parse(text, nodes)
    for number, text in _lines(args.faults) if args.faults else ():
        try:
            fault = parse(text, nodes)
            refuse_unknown(fault, len(nodes), runs)
        except UsageError as error:
            raise UsageError(f"{args.faults}:{number}: {error.message}", hint=error.hint) from None
        yield fault


def _lines(name: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines of a file that say something."""
    from orchestrator.onnode.regular import read_bytes
    from orchestrator.resources import user_path

    try:
        content = read_bytes(user_path(name), MOST_BYTES).decode()
    except OSError as error:
        raise UsageError(f"--faults: {name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--faults: {name} is not a text in UTF-8") from error
    for number, line in enumerate(content.splitlines(), 1):
        if text := line.partition("#")[0].strip():
            yield number, text


def _output(args: Namespace, entry: Entry) -> Path | None:
    """Return where the set's folder is kept. Raises UsageError for a place that is taken, or among real sets."""
    from orchestrator.resources import user_path

    if args.output is None:
        return None
    output = user_path(args.output).absolute()
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UsageError(f"{output} exists and is not empty", hint="name another folder with -o")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent} is not a folder", hint=f"mkdir -p {output.parent}")
    if output.parent.resolve() == site_log_dir(entry.site).resolve():
        raise UsageError(
            f"{output} is in the site's log directory, among real sets", hint="name a folder elsewhere with -o"
        )
    return output


# ---- one set ----


def _one(args: Namespace, plan: RehearsalPlan, output: Path | None) -> int:
    from tempfile import TemporaryDirectory

    from orchestrator.simulation.rehearsal import rehearse

    with TemporaryDirectory(prefix="rehearsal-", dir=_memory()) as folder:
        rehearsal = rehearse(plan, Path(folder))
        if output is not None:
            _keep(rehearsal.root, output)
        if args.json:
            _print_json(rehearsal, output)
        else:
            _print(rehearsal, output)
    return ExitCode.OK if rehearsal.complete else ExitCode.NO_SCORE


def _memory() -> str | None:
    """Return a folder in memory, if this machine has one that can be used; else the usual place of temporary folders."""
    import os

    place = "/dev/shm"
    return place if "TMPDIR" not in os.environ and os.access(place, os.W_OK | os.X_OK) else None


def _keep(root: Path, output: Path) -> None:
    """Copy a set's folder to `output`, which appears complete or not at all."""
    import os
    import shutil

    temporary = output.parent / f".{output.name}.tmp.{os.getpid()}"
    try:
        shutil.copytree(root, temporary, symlinks=True)
        os.replace(temporary, output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}", hint="name another -o") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _print(rehearsal: Rehearsal, output: Path | None) -> None:
    from orchestrator.cli.output import draw, print_facts, print_table, screen
    from orchestrator.cli.pictures import RUNS, TIMELINE, describe, moment_row, run_row

    print_facts(_facts(rehearsal))
    print()
    print_table(TIMELINE, [moment_row(moment) for moment in rehearsal.timeline])
    print()
    picture = _picture(rehearsal, output)
    print_facts(describe(picture))
    print()
    print_table(RUNS, [run_row(one) for one in picture.runs])
    if text := _score_text(rehearsal, output):
        print()
        draw([text])
    print()
    draw([screen().paint(f"rehearsal: {rehearsal.summary}", "1;32" if rehearsal.complete else "1;31")])
    for fault in rehearsal.unused:
        print(f"this fault did not happen, its time never came: {fault}")
    if output is not None:
        print(f"kept: {output}")


def _facts(rehearsal: Rehearsal) -> list[tuple[str, str]]:
    from orchestrator.nodes.names import fold
    from orchestrator.simulation.faults import span

    plan, entry = rehearsal.plan, rehearsal.plan.entry
    site = entry.site
    pairs = [
        ("rehearsal", f"{plan.nexp} runs of {entry.system} {entry.workload} (round {entry.round}); no training runs"),
        ("seed", str(plan.seed)),
        ("cluster", f"{fold(plan.nodes)}; {_job_words(entry)}"),
        ("time limit", site.time_limit or f"{entry.job_minutes(-(-plan.nexp // site.side_by_side))} minutes"),
        ("run times", rehearsal.source),
        ("resumed", f"{span(plan.resume_after_s)} after a job that ends with runs missing"),
    ]
    return pairs + [("fault", str(fault)) for fault in plan.faults]


def _job_words(entry: Entry) -> str:
    site = entry.site
    at_once = f", {site.side_by_side} runs side by side" if site.side_by_side > 1 else ""
    return f"a run takes {entry.nodes}{at_once}, {site.spares} spare"


def _picture(rehearsal: Rehearsal, output: Path | None) -> Any:
    """Return the picture of the set, as `orchestrator status` draws it."""
    from orchestrator.evidence.picture import look
    from orchestrator.scheduler import open_scheduler

    [picture] = look([rehearsal.root], [open_scheduler("slurm")])  # which is not asked about a rehearsal
    return moved(picture, str(rehearsal.root), str(output or rehearsal.set_id))


def moved(value: Any, place: str, name: str) -> Any:
    """Return `value` with another name of the set's folder in every text."""
    from dataclasses import fields, is_dataclass, replace

    if isinstance(value, str):
        return value.replace(place, name)
    if isinstance(value, Path):
        return Path(str(value).replace(place, name))
    if isinstance(value, (list, tuple)):
        parts = [moved(one, place, name) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: moved(one, place, name) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: moved(getattr(value, one.name), place, name) for one in fields(value)})
    return value


def _score(rehearsal: Rehearsal, output: Path | None) -> Any:
    """Return the set's score; None if no run has a result."""
    from orchestrator.mllog.score import score_dir

    try:
        score = score_dir(str(rehearsal.root))
        return score.replace(**moved(dict(score.__dict__), str(rehearsal.root), str(output or rehearsal.set_id)))
    except OrchestratorError:
        return None


def _score_text(rehearsal: Rehearsal, output: Path | None) -> str:
    from orchestrator.cli.output import screen
    from orchestrator.cli.score import against_published
    from orchestrator.mllog.table import score_text

    score = _score(rehearsal, output)
    if score is None:
        return ""
    return score_text(score, screen(), against_published(str(rehearsal.root), None if score.own else score.minutes))


def _print_json(rehearsal: Rehearsal, output: Path | None) -> None:
    from dataclasses import asdict

    from orchestrator.cli.output import print_json
    from orchestrator.evidence.picture import as_json

    plan, score = rehearsal.plan, _score(rehearsal, output)
    print_json(
        "rehearsal",
        {
            "seed": plan.seed,
            "set": str(output) if output else None,
            "set_id": rehearsal.set_id,
            "system": plan.entry.system,
            "workload": plan.entry.workload,
            "round": plan.entry.round,
            "nexp": plan.nexp,
            "nodes": list(plan.nodes),
            "spares": plan.entry.site.spares,
            "side_by_side": plan.entry.site.side_by_side,
            "run_times": rehearsal.source,
            "faults": [str(fault) for fault in plan.faults],
            "unused_faults": [str(fault) for fault in rehearsal.unused],
            "timeline": [asdict(moment) for moment in rehearsal.timeline],
            "complete": rehearsal.complete,
            "missing_runs": list(rehearsal.missing),
            "ended_s": rehearsal.ended_s,
            "resumes": rehearsal.resumes,
            "summary": rehearsal.summary,
            "status": as_json(_picture(rehearsal, output)),
            "score": None if score is None else score.to_json(),
        },
    )


COMMAND = Command(
    "rehearse",
    "play a set in seconds on a virtual clock, with faults: what happens, how long it takes",
    __doc__,
    add_arguments,
    run,
    {ExitCode.OK: "the rehearsed set is complete", ExitCode.NO_SCORE: "runs of it are missing in the end"},
)
