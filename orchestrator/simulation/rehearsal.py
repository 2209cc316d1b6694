"""A planned set on the virtual clock: events and duration.

plan = make_plan(entry, nexp=10, faults=[parse("node 3 dies in run 4")])
rehearsal = rehearse(plan, folder)
rehearsal.timeline ; rehearsal.ended_s ; rehearsal.root
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.errors import UsageError
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.silence import LOOP_SILENT_S
from orchestrator.nodes.names import expand_all, fold
from orchestrator.onnode.set.ledger import MARK
from orchestrator.runset.allocation import without
from orchestrator.simulation.engine import Stuck
from orchestrator.simulation.faults import Fault, plant, refuse_unknown, span
from orchestrator.simulation.play import Simulation
from orchestrator.simulation.rendered import Rendered
from orchestrator.words import count, duration

if TYPE_CHECKING:
    from orchestrator.model import Entry

MOST_NODES = 10_000
MOST_RESUMES = 20
RESUME_S = 1800.0
LONGEST_S = 365 * 86400.0
_RANK = re.compile(r"node (\S+) \(rank \d+\) ([^;,]+)")


@dataclass(frozen=True)
class RehearsalPlan:
    entry: Entry
    nexp: int
    nodes: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    seed: int = 1
    resume_after_s: float = RESUME_S
    resumes: int = MOST_RESUMES
    run_s: float | None = None
    """Of a usual run; None: as published."""


class Moment(NamedTuple):
    """An event, `at_s` seconds after the submission."""

    at_s: float
    kind: str
    """`user`, `slurm`, `fault`, `loop` or `run`"""
    text: str


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsed set, complete or given up after `ended_s`."""

    plan: RehearsalPlan
    root: Path
    set_id: str
    source: str
    """Of the run length."""
    timeline: tuple[Moment, ...]
    ended_s: float
    resumes: int
    missing: tuple[int, ...]
    unused: tuple[Fault, ...]
    """Their time never came."""
    stuck: str = ""
    """Why it was given up early, or ""."""

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def summary(self) -> str:
        resumed = {0: "without `resume`", 1: "after 1 `resume`"}.get(
            self.resumes, f"after {self.resumes} resumes"
        )
        if self.complete:
            return f"complete after {duration(self.ended_s)}, {resumed}"
        why = f" ({self.stuck})" if self.stuck else ""
        left = f"{len(self.missing)} of {count(self.plan.nexp, 'run')} without result{why}"
        return f"not complete after {duration(self.ended_s)}, {resumed}: {left}"


def make_plan(
    entry: Entry,
    nexp: int | None = None,
    *,
    cluster: int | None = None,
    faults: Sequence[Fault] = (),
    seed: int = 1,
    resume_after_s: float = RESUME_S,
    run_s: float | None = None,
) -> RehearsalPlan:
    """Return a plan for `cluster` nodes (default: the job's).

    Raises UsageError for a small cluster, and for faults of missing nodes and runs.
    """
    names = cluster_nodes(entry, cluster)
    nexp = nexp or entry.runs_required
    for fault in faults:
        refuse_unknown(fault, len(names), nexp)
    return RehearsalPlan(
        on_cluster(entry), nexp, tuple(names), tuple(faults), seed, resume_after_s, run_s=run_s
    )


def job_nodes(entry: Entry) -> int:
    return entry.nodes * entry.site.side_by_side + entry.site.spares


def cluster_nodes(entry: Entry, count: int | None = None) -> list[str]:
    """Return the site's node names, if enough, else n1, n2 ... Raises UsageError."""
    needed = job_nodes(entry)
    count = count or needed
    if count < needed:
        raise UsageError(f"a cluster of {count} nodes is too small: the job asks for {needed}")
    if count > MOST_NODES:
        raise UsageError(
            f"a rehearsed cluster has at most {MOST_NODES} nodes, and {count} are asked for"
        )
    named = without(entry.site.nodelist, expand_all(entry.site.exclude))
    return (
        named[:count] if len(named) >= count else [f"n{number}" for number in range(1, count + 1)]
    )


def on_cluster(entry: Entry) -> Entry:
    """Change `entry` for the rehearsed cluster, a Slurm partition."""
    changed: dict[str, object] = {
        "scheduler": "slurm",
        "account": None,
        "qos": None,
        "reservation": None,
        "constraint": None,
        "nodelist": [],
        "exclude": [],
        "sbatch": [],
    }
    return replace(entry, site=entry.site.model_copy(update=changed))


class RehearsedWorld(Simulation):
    """A simulation whose user resumes after a fixed time."""

    def __init__(self, plan: RehearsalPlan, folder: Path, bundle: Rendered | None = None) -> None:
        bundle = bundle or Rendered(plan.entry, plan.nexp)
        super().__init__(bundle, folder, plan.seed, plan.nodes, run_seconds=plan.run_s)
        self.plan, self.resumes = plan, 0
        for fault in plan.faults:
            plant(self, fault)

    @property
    def lengths(self) -> list[float]:
        return self.trainings.lengths

    @property
    def time_limits_s(self) -> list[float | None]:
        return [job.request.time_limit_s for job in self.all_jobs]

    @property
    def ended_s(self) -> float:
        """The end of the last job; without jobs, of the last command."""
        ends = [_at_s(self, job.times.end_ms) for job in self.all_jobs if job.times.end_ms]
        return max(ends) if ends else self.done[-1].at

    def play(self, limit_s: float = LONGEST_S) -> None:
        self.submit()
        while True:
            self.engine.run(lambda: self._abandoned() or self.idle(), limit_s)
            if self.idle() and (not self.missing() or self.resumes >= self.plan.resumes):
                return
            if not self.idle():
                self._wait(LOOP_SILENT_S)
                if not self._abandoned():
                    continue
                self.cancel()
                self.engine.run(self.idle, limit_s)
            self._wait(self.plan.resume_after_s)
            if self.idle() and self.missing():
                self.resumes += 1
                self.resume()

    def _abandoned(self) -> bool:
        """Return whether --no-kill keeps a job whose batch host died."""
        loops = self.jobs.loops.values()
        # A list is faster than a generator: this runs after every event.
        dead = [loop for loop in loops if not loop.process.alive and loop.job.state == "RUNNING"]
        return bool(dead)

    def _wait(self, seconds: float) -> None:
        until = self.engine.now + seconds
        self.engine.after(seconds, lambda: None)
        self.engine.run(lambda: self.engine.now >= until)


def rehearse(plan: RehearsalPlan, folder: Path, bundle: Rendered | None = None) -> Rehearsal:
    """Play a set in a `folder` of its own. `bundle`: the plan's, if rendered."""
    world, stuck = RehearsedWorld(plan, folder, bundle), ""
    try:
        world.play(LONGEST_S)
        world.settle()
    except Stuck as error:
        stuck = "; ".join(
            f"job {job.id} is {job.shown.lower()}: {job.reason}" for job in world.live()
        ) or str(error)
    finally:
        world.close()
    for failure in world.jobs.failures:
        raise failure
    if world.run_set is None:
        raise UsageError(f"no set was made: {world.done[0].error}")
    missing = tuple(world.missing())
    happened = [fault for _, fault in world.happened]
    return Rehearsal(
        plan,
        world.run_set.layout.root,
        world.run_set.name,
        world.trainings.source,
        tuple(sorted(_timeline(world), key=lambda moment: moment.at_s)),
        world.ended_s,
        world.resumes,
        missing,
        tuple(fault for fault in plan.faults if fault not in happened),
        stuck,
    )


def _timeline(world: RehearsedWorld) -> Iterator[Moment]:
    """Yield the events; simultaneous ones in causal order."""
    yield from _commands(world)
    for at, fault in world.happened:
        if isinstance(fault, Fault):
            yield Moment(at, "fault", fault_text(fault, world.plan.nodes))
    yield from _jobs(world)
    yield from _runs(world)


def _commands(world: RehearsedWorld) -> Iterator[Moment]:
    for done in world.done:
        failed = (
            f": {done.error.splitlines()[0]}" if done.error else ": killed" if done.killed else ""
        )
        yield Moment(done.at, "user", _bare(world, f"orchestrator {done.name}{failed}"))


def fault_text(fault: Fault, nodes: Sequence[str]) -> str:
    """Return a fault with node names: `node n3 dies, for 2h`."""
    text = re.sub(
        r"\bnode (\d+)\b",
        lambda match: f"node {nodes[(int(match[1]) - 1) % len(nodes)]}",
        fault.event,
    )
    return f"{text}, for {span(fault.for_s)}" if fault.for_s else text


def _jobs(world: RehearsedWorld) -> Iterator[Moment]:
    for at, job, text in world.jobs.log:
        if text.startswith("starts on "):
            yield Moment(at, "slurm", f"job {job} {text}")
        elif MARK not in text and (text := _loop_text(world, text)):
            yield Moment(at, "loop", text)
    for ended in world.all_jobs:
        if ended.times.end_ms and ended.state not in ("COMPLETED", "FAILED"):
            text = f"job {ended.id} is ended by Slurm: {ended.state}"
            yield Moment(_at_s(world, ended.times.end_ms), "slurm", text)


def _at_s(world: RehearsedWorld, ms: int) -> float:
    return (ms - world.engine.start_ms) / 1000


def _loop_text(world: RehearsedWorld, text: str) -> str:
    """Return a loop's line, "" if other lines cover it."""
    if text.startswith(("ranks, in the order", f"set {world.folder}")):
        return ""
    if match := re.fullmatch(r"nodes (.*); waiting: (.*)", text):
        return f"runs use {fold(match[1].split())}; waiting: {fold(match[2].split()) or 'none'}"
    return _bare(world, folded_ranks(text))


def folded_ranks(text: str) -> str:
    """Put nodes of equal fate together: `node n[1-7] exited 143`."""
    matches = _RANK.findall(text)
    if len(matches) < 2:
        return text
    fates: dict[str, list[str]] = {}
    for node, fate in matches:
        fates.setdefault(fate, []).append(node)
    fates_text = ", ".join(
        f"node{'s' * (len(nodes) > 1)} {fold(nodes)} {fate}" for fate, nodes in fates.items()
    )
    start, end = _RANK.search(text), list(_RANK.finditer(text))[-1]
    return text[: start.start() if start else 0] + fates_text + text[end.end() :]


def _bare(world: RehearsedWorld, text: str) -> str:
    """Drop the set's temporary folder and long name."""
    text = text.replace(f"{world.log_dir}/", "")
    name = world.run_set.name if world.run_set else ""
    return text.replace(f"set {name}: ", "set: ").replace(
        f"orchestrator resume {name}", "orchestrator resume"
    )


def _runs(world: RehearsedWorld) -> Iterator[Moment]:
    """Yield attempts with a result: the loop reports failed ones."""
    evidence = SetEvidence(world.run_set.layout.root) if world.run_set else None
    for run, attempt in evidence.tried if evidence else ():
        record = evidence.attempt(run, attempt) if evidence else None
        if record is not None and record.done:
            took = duration((record.end_ms - record.start_ms) / 1000)
            what = "has converged" if record.state == "success" else "has not reached its target"
            again = f" (attempt {attempt})" if attempt > 1 else ""
            yield Moment(
                _at_s(world, record.end_ms), "run", f"run {run}{again} {what} after {took}"
            )
