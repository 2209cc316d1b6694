"""Play a set on a virtual clock, in seconds: its course, its duration, and the effects of faults.

The loop, its decisions and the commands are the real ones. Cluster, nodes, storage and trainings
are simulated: nothing is submitted, nothing is written to the site's log directory, and no training
runs. Times of runs are drawn from published results, else estimated. When a job ends with runs
missing, the set is resumed after --resume-after. `orchestrator docs rehearse` lists the faults and
the limits of the model.

With --node-mtbf it plays many sets whose nodes fail at random, side by side on all cores. For each
number of spares it prints the distribution of the finishing time, and the probability of finishing
within a limit.

example:
  orchestrator rehearse MI325X_08x08x32 flux1 --spares 1 --fault 'node 3 dies in run 4'
  orchestrator rehearse MI325X_08x08x32 flux1 --time 8:00:00 --resume-after 2h -o rehearsed
  orchestrator rehearse MI355X_1x8x1 llama31_8b --nexp 3 --faults faults.txt --seed 7
  orchestrator rehearse MI325X_08x08x32 flux1 --node-mtbf 2000h --spares 0..3 --within 24h
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    add_entry,
    add_json,
    add_number,
    add_option,
    spares,
    time_limit,
)
from orchestrator.cli.command import Command
from orchestrator.cli.finding import load_asked, site_log_dir
from orchestrator.cli.output import note
from orchestrator.errors import ExitCode, OrchestratorError, UsageError
from orchestrator.words import count, duration, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from orchestrator.model import Entry
    from orchestrator.simulation.faults import Fault
    from orchestrator.simulation.rehearsal import Rehearsal, RehearsalPlan
    from orchestrator.simulation.trials import Failures, SparesResult
    from orchestrator.views.parts import Part

MOST_BYTES = 1 << 20
"""Limit for a file of faults."""
MOST_RANGE = 20
TRIALS, REPAIR_S = 1000, 4 * 3600.0
PATIENCE_S = 20.0
"""Longer trials are announced."""


def add_arguments(parser: ArgumentParser) -> None:
    add_entry(parser, spares_range)
    add_option(
        parser,
        "--time",
        "TIME",
        "the job's time limit, as for sbatch (default: the site's)",
        type=time_limit,
    )
    add_number(
        parser, "--cluster", "N", "nodes of the cluster (default: as many as the job asks for)"
    )
    add_option(
        parser,
        "--run-time",
        "TIME",
        "how long a usual run takes, such as 95min (default: as published, else estimated)",
        type=time_span,
    )
    parser.add_argument(
        "--fault",
        metavar="SENTENCE",
        action="append",
        default=[],
        help=(
            "a fault, such as 'node 3 dies in run 4' or 'the reservation ends at 8h'; "
            "may be repeated"
        ),
    )
    add_option(
        parser, "--faults", "FILE", "file with one such sentence per line; # starts a comment"
    )
    add_number(parser, "--seed", "N", "random seed (default: 1)", 1)
    add_option(
        parser,
        "--resume-after",
        "TIME",
        "how long after the end of a job with missing runs the set is resumed, such as 2h "
        "(default: 30m)",
        type=time_span,
        default=1800.0,
    )
    add_option(
        parser,
        "-o --output",
        "DIR",
        "keep the set's folder as DIR, for status, nodes, explain, score, report",
    )
    rates = parser.add_argument_group("nodes that fail at random")
    add_option(
        rates,
        "--node-mtbf",
        "TIME",
        "mean time between failures of a node, such as 2000h: play many sets; --spares takes "
        "a range then, such as 0..3",
        type=time_span,
    )
    add_number(
        rates, "--trials", "N", f"number of sets for each number of spares (default: {TRIALS})"
    )
    add_option(
        rates,
        "--node-repair",
        "TIME",
        "how long a node that failed is away (default: 4h)",
        type=time_span,
    )
    add_option(
        rates,
        "--within",
        "TIME",
        "also: how many sets finish within this time, such as 24h",
        type=time_span,
    )
    add_json(parser)


def spares_range(text: str) -> tuple[int, ...]:
    """Parse `2` or `0..3`."""
    first, dots, last = text.partition("..")
    numbers = tuple(range(spares(first), spares(last) + 1)) if dots else (spares(text),)
    if not numbers or len(numbers) > MOST_RANGE:
        raise ArgumentTypeError(
            f"{text!r} is not a range such as 0..3, of at most {MOST_RANGE} numbers"
        )
    return numbers


def time_span(text: str) -> float:
    from orchestrator.simulation.faults import seconds

    try:
        value = seconds(text)
    except UsageError as error:
        raise ArgumentTypeError("; ".join(filter(None, [error.message, error.hint]))) from None
    if not value:
        raise ArgumentTypeError(f"{text!r} is not a duration above 0")
    return value


def run(args: Namespace) -> int:
    _refuse_mixed(args)
    numbers: tuple[int, ...] = args.spares or ()
    entry = _entry(args, numbers[0] if numbers else None)
    if args.node_mtbf is not None:
        return _many(args, entry, numbers or (entry.site.spares,))
    output = _output(args, entry)
    return _play_once(args, _plan(args, entry), output)


def _refuse_mixed(args: Namespace) -> None:
    if args.node_mtbf is None:
        many = {"--trials": args.trials, "--node-repair": args.node_repair, "--within": args.within}
        for option in (option for option, value in many.items() if value is not None):
            raise UsageError(
                f"{option} goes with --node-mtbf", hint="--node-mtbf 2000h plays many sets"
            )
        if len(args.spares or ()) > 1:
            raise UsageError(
                "a range of --spares goes with --node-mtbf",
                hint="one set is played with one number of spares",
            )
    elif args.output is not None:
        raise UsageError("-o goes with one set, not with --node-mtbf")


def _entry(args: Namespace, spares: int | None) -> Entry:
    """Raise UsageError, like `submit`, for a job that no partition takes."""
    from dataclasses import replace

    from orchestrator.runset.limit import refuse_too_long

    entry = load_asked(Namespace(**{**vars(args), "spares": spares}))
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
    """Yield faults of command line and file. Raises UsageError, with the file's line."""
    from orchestrator.simulation.faults import parse, refuse_unknown
    from orchestrator.simulation.rehearsal import cluster_nodes

    nodes = cluster_nodes(entry, args.cluster)
    runs = args.nexp or entry.runs_required
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
    from orchestrator.onnode.kernel.regular import read_bytes
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
    """Raises UsageError if the place exists, or is among real sets."""
    from orchestrator.resources import user_path

    if args.output is None:
        return None
    output = user_path(args.output).absolute()
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UsageError(f"{output} exists and is not empty", hint="name another folder with -o")
    if not output.parent.is_dir():
        raise UsageError(
            f"{quoted(output.parent)} is not a folder", hint=f"mkdir -p {quoted(output.parent)}"
        )
    if output.parent.resolve() == site_log_dir(entry.site).resolve():
        raise UsageError(
            f"{output} is in the site's log directory, among real sets",
            hint="name a folder elsewhere with -o",
        )
    return output


# ---- one set ----


def _play_once(args: Namespace, plan: RehearsalPlan, output: Path | None) -> int:
    from orchestrator.simulation.rehearsal import rehearse

    with _temporary() as folder:
        rehearsal = rehearse(plan, folder)
        if output is not None:
            _keep(rehearsal.root, output)
        if args.json:
            _print_json(rehearsal, output)
        else:
            _print(rehearsal, output)
    return ExitCode.OK if rehearsal.complete else ExitCode.NO_SCORE


@contextmanager
def _temporary() -> Iterator[Path]:
    """Create a temporary folder, in memory if possible; SIGTERM removes it, too."""
    import os
    import signal
    from tempfile import TemporaryDirectory

    from orchestrator.cli.signals import exit_on

    memory = "/dev/shm"
    usable = "TMPDIR" not in os.environ and os.access(memory, os.W_OK | os.X_OK)
    with (
        exit_on(signal.SIGTERM),
        TemporaryDirectory(prefix="rehearsal-", dir=memory if usable else None) as folder,
    ):
        yield Path(folder)


def _keep(root: Path, output: Path) -> None:
    """Copy a set's folder, complete or not at all."""
    import os
    import shutil

    temporary = output.parent / f".{output.name}.tmp.{os.getpid()}"
    try:
        shutil.copytree(root, temporary, symlinks=True)
        os.replace(temporary, output)
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror or error}", hint="name another -o"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _print(rehearsal: Rehearsal, output: Path | None) -> None:
    from orchestrator.cli.closing import facts_and_runs
    from orchestrator.cli.output import print_parts
    from orchestrator.cli.rehearsal_parts import timeline_table
    from orchestrator.views.parts import FactList, Headline

    plan = rehearsal.plan
    parts: list[Part] = [
        FactList([*_facts(plan, rehearsal.source), ("cluster", _cluster(plan))]),
        timeline_table(rehearsal.timeline),
        *facts_and_runs(_picture(rehearsal, output)),
        *_score_parts(rehearsal, output),
        Headline(f"rehearsal: {rehearsal.summary}", "good" if rehearsal.complete else "bad"),
    ]
    print_parts(parts)
    for fault in rehearsal.unused:
        print(f"this fault did not happen, its time never came: {fault}")
    if output is not None:
        print(f"kept: {output}")


def _facts(plan: RehearsalPlan, source: str) -> list[tuple[str, str]]:
    """`source`: of the run length."""
    from orchestrator.render.job_time import job_time
    from orchestrator.scheduler.slurm_times import minutes_of
    from orchestrator.simulation.faults import span

    entry = plan.entry
    site = plan.entry.site
    default = job_time(entry).minutes(plan.nexp)
    minutes = minutes_of(site.time_limit) if site.time_limit else default
    pairs = [
        (
            "rehearsal",
            (
                f"{count(plan.nexp, 'run')} of {entry.system} {entry.workload} (round "
                f"{entry.round}); no "
                "training runs"
            ),
        ),
        ("seed", str(plan.seed)),
        ("time limit", "none" if minutes is None else duration(60 * minutes)),
        ("run times", source),
        ("resumed", f"{span(plan.resume_after_s)} after a job that ends with runs missing"),
    ]
    return pairs + [("fault", str(fault)) for fault in plan.faults]


def _cluster(plan: RehearsalPlan) -> str:
    from orchestrator.nodes.names import fold

    entry = plan.entry
    site = plan.entry.site
    at_once = f", {site.side_by_side} runs side by side" if site.side_by_side > 1 else ""
    return f"{fold(plan.nodes)}; a run takes {entry.nodes}{at_once}; {site.spares or 'no'} spare"


def _picture(rehearsal: Rehearsal, output: Path | None) -> Any:
    from orchestrator.evidence.picture import look
    from orchestrator.scheduler import open_scheduler

    scheduler = open_scheduler(rehearsal.plan.entry.site.scheduler)  # not asked about a rehearsal
    [picture] = look([rehearsal.root], [scheduler])
    return moved(picture, str(rehearsal.root), str(output or rehearsal.set_id))


def moved(value: Any, place: str, name: str) -> Any:
    """Rename the set's folder in every text of `value`."""
    from dataclasses import fields, is_dataclass, replace

    if isinstance(value, str):
        return value.replace(place, name)
    if isinstance(value, Path):
        return Path(str(value).replace(place, name))
    if isinstance(value, (list, tuple)):
        parts = [moved(item, place, name) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: moved(item, place, name) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value,
            **{item.name: moved(getattr(value, item.name), place, name) for item in fields(value)},
        )
    return value


def _score(rehearsal: Rehearsal, output: Path | None) -> Any:
    from orchestrator.mllog.score import score_dir

    try:
        score = score_dir(str(rehearsal.root))
        return score.replace(
            **moved(dict(score.__dict__), str(rehearsal.root), str(output or rehearsal.set_id))
        )
    except OrchestratorError:
        return None


def _score_parts(rehearsal: Rehearsal, output: Path | None) -> list[Part]:
    from orchestrator.cli.score import against_published
    from orchestrator.views.score import score_parts

    score = _score(rehearsal, output)
    if score is None:
        return []
    return score_parts(score, against_published(str(rehearsal.root), score))


def _print_json(rehearsal: Rehearsal, output: Path | None) -> None:
    from orchestrator.cli.output import print_json
    from orchestrator.evidence.picture import as_json

    plan = rehearsal.plan
    score = _score(rehearsal, output)
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
            "timeline": [moment._asdict() for moment in rehearsal.timeline],
            "complete": rehearsal.complete,
            "missing_runs": list(rehearsal.missing),
            "ended_s": rehearsal.ended_s,
            "resumes": rehearsal.resumes,
            "summary": rehearsal.summary,
            "status": as_json(_picture(rehearsal, output)),
            "score": None if score is None else score.to_json(),
        },
    )


# ---- many sets ----


def _many(args: Namespace, entry: Entry, numbers: Sequence[int]) -> int:
    from dataclasses import replace

    from orchestrator.simulation.trials import Failures, run_trials

    entries = [
        replace(entry, site=entry.site.model_copy(update={"spares": number})) for number in numbers
    ]
    plans = [_plan(args, entry) for entry in entries]
    failures = Failures(args.node_mtbf, REPAIR_S if args.node_repair is None else args.node_repair)
    trials = args.trials or TRIALS
    with _temporary() as folder:
        results = run_trials(plans, failures, trials, folder, _expect)
    if args.json:
        _print_many_json(args, plans[0], failures, results)
    else:
        _print_many(args, plans[0], failures, results)
    return ExitCode.OK


def _expect(seconds: float) -> None:
    if seconds > PATIENCE_S:
        note(f"the trials take about {duration(seconds)} on this machine; --trials N plays fewer")


def _print_many(
    args: Namespace, plan: RehearsalPlan, failures: Failures, results: Sequence[SparesResult]
) -> None:
    from orchestrator.cli.output import print_parts
    from orchestrator.cli.rehearsal_parts import spares_table
    from orchestrator.simulation.faults import span
    from orchestrator.simulation.training import Trainings, facts_of
    from orchestrator.simulation.trials import half_width
    from orchestrator.views.parts import FactList, Sentences

    source = Trainings(facts_of(plan.entry), run_seconds=plan.run_s).source
    fail = (
        f"a node fails after {failures.mtbf_s / 3600:g}h on average; it is back after "
        f"{span(failures.repair_s)}"
    )
    limit = "" if args.within is None else span(args.within)
    trials = len(results[0].trials)
    shares = [
        share
        for result in results
        for share in (result.unattended, result.complete, result.within(args.within or 0.0))
    ]
    sure = 100 * max(half_width(share, trials) for share in shares)
    sets = count(trials, "set")
    remark = f"{sets} with each number of spares: the shares are sure to {sure:.1f} points"
    print_parts(
        [
            FactList([*_facts(plan, source), ("failures", fail)]),
            spares_table(results, args.within, limit),
            Sentences([f"{remark} (95 %)"]),
        ]
    )


def _print_many_json(
    args: Namespace, plan: RehearsalPlan, failures: Failures, results: Sequence[SparesResult]
) -> None:
    from orchestrator.cli.output import print_json
    from orchestrator.simulation.training import Trainings, facts_of

    print_json(
        "rehearsal-trials",
        {
            "seed": plan.seed,
            "system": plan.entry.system,
            "workload": plan.entry.workload,
            "round": plan.entry.round,
            "nexp": plan.nexp,
            "run_times": Trainings(facts_of(plan.entry), run_seconds=plan.run_s).source,
            "faults": [str(fault) for fault in plan.faults],
            "node_mtbf_s": failures.mtbf_s,
            "node_repair_s": failures.repair_s,
            "resume_after_s": plan.resume_after_s,
            "within_s": args.within,
            "spares": [_spares_json(result, args.within) for result in results],
        },
    )


def _spares_json(result: SparesResult, within_s: float | None) -> dict[str, Any]:
    from orchestrator.mllog.result import plain

    return {
        "spares": result.spares,
        "nodes": result.nodes,
        "trials": len(result.trials),
        "played": result.played,
        "complete_share": result.complete,
        "median_s": plain(result.quantile(0.5)),
        "p90_s": plain(result.quantile(0.9)),
        "p99_s": plain(result.quantile(0.99)),
        "unattended_share": result.unattended,
        "within_share": None if within_s is None else result.within(within_s),
        "failures_mean": sum(trial.failures for trial in result.trials) / len(result.trials),
        "node_hours_mean": result.node_hours,
        "ended_s": [trial.ended_s if trial.complete else None for trial in result.trials],
    }


COMMAND = Command(
    "rehearse",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "the rehearsed set is complete; with --node-mtbf: done",
        ExitCode.NO_SCORE: "runs of it are missing in the end",
    },
)
