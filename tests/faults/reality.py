"""Play one fault script on the lab and in the simulation, many times each, and compare the results.

    python tests/faults/reality.py --sets 30 --out reality.jsonl [--at-once 2] [--keep DIR]
    python tests/faults/reality.py --table --out reality.jsonl       play nothing on the lab, compare the recorded sets

A set has RUNS runs on two nodes with a spare; a training's seed sets its length (steady/steady.py). Each fault of SCRIPT
happens once in a set, at a moment that the set's number decides, in both worlds alike. Compared are, set by set, the
outcomes of attempts, the states of jobs, the nodes of each step and the reasons of blame; and, over all sets, the set times
(two-sample Kolmogorov-Smirnov test).

The lab's overhead is subtracted in both worlds: the seconds in which jobs and steps start (from the request of a job, or
the release of the last step, to the next attempt), in which nodes gather evidence of a hang, and between two jobs (from the
end that a job has recorded; without one, from the end in Slurm); also what an attempt, and the end of a job, take in sets
without faults, which are played between the others. Each simulated set takes the pace of one of these, in turn.

Sets in --out are not played again. The exit status is 1 if the worlds differ. The lab must be up (lab/up).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "steady"), str(HERE.parent), str(HERE.parent.parent)]

import steady  # noqa: E402
from labs import lab_at, lab_state  # noqa: E402
from run_sets import Set  # noqa: E402
from trial import RESUMES, SYSTEM, Flavour, Trial  # noqa: E402

from orchestrator.evidence.events import read_events  # noqa: E402
from orchestrator.evidence.sets import SetEvidence  # noqa: E402
from orchestrator.model import Site, load_entry  # noqa: E402
from orchestrator.onnode.kernel.events import Event  # noqa: E402
from orchestrator.simulation.desk import User  # noqa: E402
from orchestrator.simulation.engine import SimProcess  # noqa: E402
from orchestrator.simulation.faults import happen, parse  # noqa: E402
from orchestrator.simulation.machine import NodePace, Span  # noqa: E402
from orchestrator.simulation.node_run import Part, TrainingRun  # noqa: E402
from orchestrator.simulation.play import Simulation  # noqa: E402
from orchestrator.simulation.rendered import Rendered  # noqa: E402

NODES, SPARES, RUNS = 2, 1, 12
CALM = 1000
"""The number of the first set without faults."""
RESUME_S = 1.0
STOPPED_S = 1.0
LIMITS = {
    "attempts": 4,
    "hang_multiple": 1,
    "hang_seconds": 8,
    "hang_start_seconds": 30,
    "end_grace_seconds": 5,
    "container_start_seconds": 60,
    "run_timeout_minutes": 2,
}
ALPHA = 0.05
"""Of both tests together."""

TRAINING = {"crash": "crash", "early exit": "exit", "hang": "hang", "deaf hang": "deaf"}
"""Faults that the training itself has to carry out."""
SCRIPT = {
    "crash": "the training crashes on node {node}",
    "early exit": "the training exits early on node {node}",
    "hang": "the training hangs",
    "deaf hang": "the training hangs and ignores TERM",
    "container ends": "the container of node {node} ends",
    "agent killed": "the agent of node {node} is killed",
    "agent stopped": f"the agent of node {{node}} is stopped for {STOPPED_S:g} s",
    "loop killed": "the loop is killed",
    "loop stopped": f"the loop is stopped for {STOPPED_S:g} s",
    "cancelled": "the job is cancelled",
    "USR1": "the job gets USR1",
}
"""Kind of fault -> its sentence for the simulation. One fault each, in the runs from 2 on."""
END_JOB = ("loop killed", "cancelled", "USR1")


@dataclass(frozen=True)
class Planned:
    """A fault in the first attempt of a run, `after` so many seconds, at the node with a rank."""

    kind: str
    run: int
    after: float
    rank: int


def plan(number: int) -> list[Planned]:
    """Return the faults of a set."""
    if number >= CALM:
        return []
    dice = random.Random(number)
    return [
        Planned(kind, run, dice.uniform(0.5, 1.5), dice.randrange(NODES))
        for run, kind in enumerate(SCRIPT, 2)
    ]


# ---- the record of a set ----

Interval = tuple[int, int]
"""Start and end, in Unix milliseconds."""


def record(number: int, root: Path, pauses: Sequence[Interval]) -> dict[str, Any]:
    """Return the outcomes of a set, its times in seconds, and how long its nodes took for each stage."""
    played, events = Set(root), _events(root)
    jobs = played.jobs()
    attempts = {
        (event.data()["run"], event.data()["attempt"]): event
        for event in events
        if event.word == "attempt"
    }
    last = max(event.ms for event in events if event.word == "outcome")
    edges = [*(attempts[run, 1].ms for run in range(1, RUNS + 1)), last]
    starts = _starts(events, _requested(root))
    between = [
        (idle if job["state"] == "failed" else min(idle, job["ended_ms"]), requested)
        for job, (idle, requested) in zip(jobs, pauses, strict=False)
    ]
    excluded = [*between, *_evidence(events), *starts]

    def timed(
        start: int, end: int, seeds: Sequence[int], attempt_count: int, job_count: int
    ) -> dict[str, float]:
        excluded_ms = sum(stop - begin for begin, stop in excluded if start <= begin < end)
        trained = sum(map(steady.length_s, seeds))
        return {
            "seconds": (end - start - excluded_ms) / 1000,
            "trained_s": round(trained, 3),
            "attempts": attempt_count,
            "jobs": job_count,
        }

    rows = []
    for run in range(1, RUNS + 1):
        start, end = edges[run - 1], edges[run]
        good = [
            played.attempt(run, k)["seed"]
            for k in played.attempts(run)
            if played.outcomes(run)[k - 1] == "success"
        ]
        extra = sum(start <= begin < end for begin, _ in between)
        rows.append(
            {
                "outcomes": played.outcomes(run),
                **timed(start, end, good, len(played.attempts(run)), extra),
            }
        )
    return {
        "number": number,
        "faults": [
            f"{fault.kind} in run {fault.run} after {fault.after:.2f} s" for fault in plan(number)
        ],
        "runs": rows,
        "jobs": [job["state"] for job in jobs],
        "steps": [len(event.names("nodes")) for event in events if event.word == "hold"],
        "blamed": [event.parts[0::2][:2] for event in events if event.word == "blamed"],
        "set": timed(
            _requested(root)[0],
            jobs[-1]["ended_ms"],
            [],
            sum(len(row["outcomes"]) for row in rows),
            len(jobs),
        ),
        "pauses": pauses,
        "starts_s": [(end - start) / 1000 for start, end in starts],
        "stages": {} if plan(number) else _stages(events),
    }


def _events(root: Path) -> list[Event]:
    files = sorted(root.glob("events-*.tsv"), key=lambda path: int(path.stem.split("-")[1]))
    return [event for path in files for event in read_events(path)]


def _requested(root: Path) -> list[int]:
    return sorted(submission.requested_ms for submission in SetEvidence(root).submissions)


def _starts(events: Sequence[Event], requested: Sequence[int]) -> list[Interval]:
    """Return when jobs and steps started: until the next attempt."""
    starts, since, requests = list[Interval](), 0, iter(requested)
    for event in events:
        if event.word == "begin":
            since = next(requests)
        elif event.word == "release":
            since = event.ms
        elif event.word == "attempt" and since:
            starts.append((since, event.ms))
            since = 0
    return starts


def _evidence(events: Sequence[Event]) -> list[Interval]:
    """Return when nodes gathered evidence of a hang: until the stop that follows."""
    return [
        (event.ms, next(later.ms for later in events[index:] if later.word == "stop"))
        for index, event in enumerate(events)
        if event.word == "hung"
    ]


def _stages(events: Sequence[Event]) -> dict[str, list[list[float]]]:
    """Return the seconds of each stage of NodePace, step by step or run by run.

    Of `startup` (of the program) and `answer` (of Slurm, which is asked for the time left before a run that is not the
    first), too.
    """
    stages = dict[str, dict[int, list[float]]]()
    since, looked, seed = dict[str, int](), dict[str, int](), 0

    def add(stage: str, group: str, start_ms: int, end_ms: float) -> None:
        stages.setdefault(stage, {}).setdefault(since[group], []).append(
            round((end_ms - start_ms) / 1000, 3)
        )

    for event in events:
        if event.word == "attempt" and "outcome" in since:
            add("answer", "take", since["take"], event.ms)
        if event.source == "loop" and event.word in (
            "hold",
            "placed",
            "take",
            "attempt",
            "outcome",
            "release",
        ):
            since[event.word] = event.ms
            seed = event.data().get("seed", seed)
        elif event.word == "network":
            looked[event.node] = event.ms
            add("launch", "hold", since["hold"], event.ms)
        elif event.word == "checked":
            add("checks", "hold", looked[event.node], event.ms)
        elif event.word == "ready":
            add("container", "hold", since["placed"], event.ms)
        elif event.word == "prepared":
            add("prepare", "attempt", since["attempt"], event.ms)
        elif event.word == "left":
            add("release", "hold", since["release"], event.ms)
        elif event.word == "exit":
            start_ms, end_ms = map(int, event.parts[2:4])
            add("line", "attempt", end_ms, event.ms)
            add("startup", "attempt", start_ms, end_ms - 1000 * steady.length_s(seed))
    return {stage: list(groups.values()) for stage, groups in stages.items()}


# ---- on the lab ----

FLAVOUR = Flavour("docker", NODES, SPARES, "docker", slurm=True)


@dataclass
class LabSet(Trial):
    """A set on the lab's nodes."""

    pauses: list[Interval] = field(default_factory=list)

    def meet(self, fault: Planned) -> None:
        """Let a fault happen when its time has come."""
        act: dict[str, Callable[[], Callable[[], object]]] = {
            "container ends": lambda: self._end_container(fault),
            "agent killed": lambda: self._signal("agent", fault, signal.SIGKILL),
            "agent stopped": lambda: self._stop("agent", fault),
            "loop killed": lambda: self._signal("loop", fault, signal.SIGKILL),
            "loop stopped": lambda: self._stop("loop", fault),
            "cancelled": lambda: self._command("scancel", self.job()),
            "USR1": lambda: self._command("scancel", "--signal=USR1", "--batch", self.job()),
        }
        while not self.wait(lambda: self._start_ms(fault.run), 1.0):
            if not self.alive():
                self.resume()
        happens = act[fault.kind]()  # looked up before its time
        time.sleep(max(0.0, self._start_ms(fault.run) / 1000 + fault.after - time.time()))
        happens()
        if fault.kind in END_JOB:
            self.resume()

    def resume(self) -> None:
        """Wait for the end of the job, and resume the set a second later unless it is complete."""
        if not self.wait(lambda: not self.alive(), 300):
            raise RuntimeError("its job does not end")
        idle_ms = time.time_ns() // 1_000_000
        time.sleep(RESUME_S)
        if not self.complete:
            self.command("resume", str(self.set))
            self.pauses.append((idle_ms, _requested(self.set)[-1]))

    def _start_ms(self, run: int) -> int:
        """Return when the first attempt of a run began, 0 before that."""
        mark = f"\tloop\tgo\t\t{run}.1\n"
        for path in self.set.glob("events-*.tsv"):
            before, mark_itself, _ = path.read_text(errors="replace").partition(mark)
            if mark_itself:
                return int(before.rpartition("\n")[2])
        return 0

    def _node_of(self, fault: Planned) -> str:
        return str(Set(self.set).attempt(fault.run, 1)["nodes"][fault.rank])

    def _container_of(self, fault: Planned) -> str:
        words = ("docker", "ps", "--quiet", "--filter", f"label=orchestrator.set={self.set.name}")
        return self.slurm(
            *words, "--filter", f"label=orchestrator.node={self._node_of(fault)}"
        ).split()[0]

    def _end_container(self, fault: Planned) -> Callable[[], object]:
        # `docker kill` takes a few tenths of a second.
        words = ("docker", "inspect", "--format={{.State.Pid}}", self._container_of(fault))
        pid = int(self.slurm(*words))
        return lambda: os.kill(pid, signal.SIGKILL)

    def _command(self, *argv: str) -> Callable[[], object]:
        return lambda: self.slurm(*argv)

    def _pid(self, role: str, fault: Planned) -> int:
        pids = self.processes(role)
        if role == "agent":
            mark = f"SLURMD_NODENAME={self._node_of(fault)}\0".encode()
            pids = [pid for pid in pids if mark in Path(f"/proc/{pid}/environ").read_bytes()]
        return pids[0]

    def _signal(self, role: str, fault: Planned, number: signal.Signals) -> Callable[[], object]:
        pid = self._pid(role, fault)
        return lambda: os.kill(pid, number)

    def _stop(self, role: str, fault: Planned) -> Callable[[], object]:
        pid = self._pid(role, fault)

        def stop() -> None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)

        return stop


def on_lab(number: int, keep: Path | None) -> dict[str, Any]:
    """Run a set on the lab."""
    lab, faults = lab_at(lab_state()), plan(number)
    place = Path(tempfile.mkdtemp(prefix="reality-", dir=lab.shared))
    shutil.copytree(HERE / "steady", place / "steady", ignore=shutil.ignore_patterns("__pycache__"))
    played = LabSet(FLAVOUR, place / "t", random.Random(number), RUNS, env=dict(lab.env))
    played.change_site(lambda text: _site(text, place / "steady"))
    by_training = [
        {"run": fault.run, "after": fault.after, "how": TRAINING[fault.kind], "rank": fault.rank}
        for fault in faults
        if fault.kind in TRAINING
    ]
    answer = played.command(
        *played.submit_words(), "--env", f"STEADY_FAULTS={json.dumps(by_training)}"
    )
    played.find()
    try:
        for fault in faults:
            if fault.kind not in TRAINING:
                played.meet(fault)
        for _ in range(RESUMES):
            played.resume()
            if played.complete:
                break
        else:
            raise RuntimeError(f"not complete after {RESUMES} times resume")
        if played.said:
            raise RuntimeError(f"{played.said}, {answer.stderr}")
        return record(number, played.set, played.pauses)
    finally:
        if keep:
            shutil.copytree(played.set, keep / str(number), dirs_exist_ok=True)
        played.close()
        shutil.rmtree(place, ignore_errors=True)


def _site(text: str, code: Path) -> str:
    kept = [line for line in text.splitlines() if not line.startswith("limits:")]
    return "\n".join([*kept, f"limits: {json.dumps(LIMITS)}", f"code: {{builtin: {code}}}", ""])


# ---- in the simulation ----


@dataclass(frozen=True)
class Pace:
    """How long nodes, the start of a program and Slurm's answers take on the lab."""

    nodes: NodePace
    startup: Span
    answer: Span


def measured(entry: dict[str, Any]) -> Pace:
    """Return the pace of a set without faults: of each stage the mean, spread evenly with the deviation within one step."""
    spans = dict[str, Span]()
    for stage in (
        "line",
        "launch",
        "checks",
        "container",
        "prepare",
        "release",
        "startup",
        "answer",
    ):
        groups = entry["stages"][stage]
        mean = statistics.mean(value for group in groups for value in group)
        variance = statistics.mean(
            statistics.variance(group) if len(group) > 1 else 0.0 for group in groups
        )
        half = min(mean, math.sqrt(3 * variance))
        spans[stage] = mean - half, mean + half
    startup, answer = spans.pop("startup"), spans.pop("answer")
    # The training has no TERM handler, so `stop` takes as long as `prepare`. The end of a step on one machine takes no
    # measurable time: 0.05 s from the last node's message to the end of the job.
    return Pace(
        NodePace(**spans, stop=spans["prepare"], task_end=0.0, step_end=0.0), startup, answer
    )


class Steady(Simulation):
    """A set whose trainings last as long as their seeds say, and whose user resumes it soon."""

    def __init__(self, bundle: Rendered, folder: Path, number: int, pace: Pace) -> None:
        names = [f"n{k}" for k in range(1, NODES + SPARES + 1)]
        user = User(waits=(RESUME_S, RESUME_S))
        # On the login host of the lab, as on its nodes, a dead loop is seen at once: they share a kernel.
        super().__init__(bundle, folder, number, names, pace=pace.nodes, user=user, login=names[0])
        self.startup, self.cluster.answer_s, self.idle_ms = pace.startup, pace.answer, list[int]()
        for fault in plan(number):
            self.trainings.when_run_starts(fault.run, lambda _, fault=fault: self._plant(fault))  # type: ignore[misc]

    def _plant(self, fault: Planned) -> None:
        by_training = fault.kind in TRAINING
        self.engine.after(
            fault.after + by_training * statistics.mean(self.startup), lambda: self._meet(fault)
        )

    def _part(self, run: TrainingRun) -> Part:
        super()._part(run)  # which reports the start of the run
        startup = self.engine.between(*self.startup)
        lines = steady.lines(run.seed, run.rank, run.start_ms + int(1000 * startup))
        output = tuple((startup + at, f"{line}\n".encode()) for at, line in lines)
        return Part(output, startup + steady.length_s(run.seed) + 0.001)  # after its last line

    def _meet(self, fault: Planned) -> None:
        nodes = {run.rank: run.agent.name for run in self.jobs.runs()}
        number = list(self.machines).index(nodes[fault.rank]) + 1
        happen(self, parse(f"{SCRIPT[fault.kind].format(node=number)} at 0 s"))

    def resume(self, dies_at: float = math.inf) -> SimProcess:
        """Submit what is missing."""
        self.idle_ms.append(self.engine.wall_ms - int(1000 * RESUME_S))
        return super().resume(dies_at)


def simulated(
    numbers: Sequence[int], paces: Sequence[Pace], keep: Path | None = None
) -> list[dict[str, Any]]:
    """Play sets on the virtual clock, with the paces in turn: a machine stays slow for longer than a step."""
    bundle, records = _bundle(), []
    for number in numbers:
        folder = Path(tempfile.mkdtemp(prefix="reality-"))
        world = Steady(bundle, folder, number, paces[number % len(paces)])
        try:
            world.play()
            world.settle()
            assert world.run_set is not None
            root = world.run_set.layout.root
            records.append(
                record(number, root, list(zip(world.idle_ms, _requested(root)[1:], strict=True)))
            )
            if keep:
                shutil.copytree(root, keep / f"simulated-{number}", dirs_exist_ok=True)
        finally:
            world.close()
            shutil.rmtree(folder)
    return records


def _bundle() -> Rendered:
    folder = Path(tempfile.mkdtemp(prefix="reality-systems-"))
    try:
        (folder / "faulty.yaml").write_text(SYSTEM.format(nodes=NODES, batch=8 * NODES))
        site = Site(
            scheduler="slurm",
            partition="batch",
            log_dir="/shared/sets",
            container={"engine": "docker"},
            spares=SPARES,
            limits=LIMITS,
            tunables="off",
            clear_caches=False,
        )
        return Rendered(
            load_entry("faulty", "builtin", site=site, systems_dirs=[folder]), RUNS, programs=False
        )
    finally:
        shutil.rmtree(folder)


# ---- the comparison ----


@dataclass(frozen=True)
class Overhead:
    """Seconds, from one world's sets without faults: a start, the end of a job, an attempt without its training."""

    start: float
    job: float
    attempt: float

    def off(self, times: dict[str, Any]) -> float:
        """Return the seconds of a set or run without it; they have no starts."""
        return float(times["seconds"] - self.job * times["jobs"] - self.attempt * times["attempts"])


def overhead(records: Sequence[dict[str, Any]]) -> Overhead:
    """Return the medians over the sets without faults."""
    calm = [entry for entry in records if not entry["faults"]]
    attempt = statistics.median(
        row["seconds"] - row["trained_s"] for entry in calm for row in entry["runs"]
    )
    job = statistics.median(
        entry["set"]["seconds"] - sum(row["seconds"] for row in entry["runs"]) for entry in calm
    )
    start = statistics.median(seconds for entry in calm for seconds in entry["starts_s"])
    return Overhead(start, job, attempt)


def outcomes(entry: dict[str, Any]) -> list[object]:
    """Return what has to be the same in both worlds, run by run; the last entry is of the whole set."""
    return [
        *(row["outcomes"] for row in entry["runs"]),
        (entry["jobs"], entry["steps"], entry["blamed"]),
    ]


def compare(
    lab: Sequence[dict[str, Any]], simulation: Sequence[dict[str, Any]]
) -> tuple[str, bool]:
    """Return a table, and whether the two worlds agree. Set by set, the records have the same numbers.

    They agree if all outcomes are equal and two tests find no difference: of the set times, and of these less the
    successful trainings, whose lengths are drawn and could hide a difference. The rows of the runs are times less trainings,
    too: they show where a difference comes from.
    """
    worlds = {"lab": lab, "simulation": simulation}
    takes = {name: overhead(records) for name, records in worlds.items()}
    sets = {
        name: [entry for entry in records if entry["faults"]] for name, records in worlds.items()
    }
    pairs = list(zip(*sets.values(), strict=True))
    lines = [
        f"{name:11} {len(records) - len(pairs)} sets without faults: a start takes {takes[name].start:.2f} s, the end of "
        f"a job {takes[name].job:.2f} s, an attempt {takes[name].attempt:.2f} s without its training"
        for name, records in worlds.items()
    ]
    lines += [
        "",
        f"{'run':>3}  {'fault':15} {'sets':>4} {'equal':>5} {'lab s':>7} {'sim s':>7}  {'D':>5} {'p':>6}  outcomes",
    ]

    def row(run: int, name: str, equal: int, times: Sequence[Sequence[float]], text: str) -> float:
        test, p = _tested(times)
        lines.append(f"{run or '':>3}  {name:15} {len(pairs):4} {equal:5} {test}  {text}")
        return p

    for run in range(1, RUNS + 1):
        times = [
            [
                takes[name].off(entry["runs"][run - 1]) - entry["runs"][run - 1]["trained_s"]
                for entry in sets[name]
            ]
            for name in worlds
        ]
        equal = sum(outcomes(here)[run - 1] == outcomes(there)[run - 1] for here, there in pairs)
        seen = sorted(
            {" ".join(entry["runs"][run - 1]["outcomes"]) for pair in pairs for entry in pair}
        )
        row(run, list(SCRIPT)[run - 2] if run > 1 else "none", equal, times, " | ".join(seen))
    equal = sum(outcomes(here) == outcomes(there) for here, there in pairs)
    whole = [[takes[name].off(entry["set"]) for entry in sets[name]] for name in worlds]
    untrained = [
        [
            seconds - sum(run["trained_s"] for run in entry["runs"])
            for seconds, entry in zip(times, records, strict=True)
        ]
        for times, records in zip(whole, sets.values(), strict=True)
    ]
    p = min(
        row(0, "set", equal, whole, "with jobs, steps and blamed nodes"),
        row(0, "less trainings", equal, untrained, ""),
    )
    agree = equal == len(pairs) and p >= ALPHA / 2
    lines += ["", f"the two worlds {'agree' if agree else 'DIFFER'}"]
    return "\n".join(lines), agree


def _tested(times: Sequence[Sequence[float]]) -> tuple[str, float]:
    from scipy.stats import ks_2samp

    test = ks_2samp(*times)
    lab, simulation = map(statistics.median, times)
    return f"{lab:7.2f} {simulation:7.2f}  {test.statistic:5.2f} {test.pvalue:6.3f}", float(
        test.pvalue
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=30, metavar="N", help="sets with faults")
    parser.add_argument("--calm", type=int, default=12, metavar="N", help="sets without faults")
    parser.add_argument(
        "--at-once", type=int, default=2, metavar="N", help="sets on the lab at the same time"
    )
    parser.add_argument("--out", type=Path, default=Path("reality.jsonl"))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for copies of the sets' folders")
    parser.add_argument("--table", action="store_true", help="compare the recorded sets")
    args = parser.parse_args()
    records = (
        [json.loads(line) for line in args.out.read_text().splitlines()]
        if args.out.exists()
        else []
    )
    done = {entry["number"] for entry in records}
    # Calm sets between the others: the machine is as busy as it is for these.
    wanted = list(range(1, args.sets + 1))
    for k in range(args.calm):
        wanted.insert(k * len(wanted) // args.calm, CALM + k)
    if all(number < CALM for number in [*done, *([] if args.table else wanted)]):
        parser.error("the overhead of the lab needs sets without faults")
    failed = 0
    with ThreadPoolExecutor(args.at_once) as pool:
        left = [number for number in wanted if number not in done and not args.table]
        for future in as_completed([pool.submit(on_lab, n, args.keep) for n in left]):
            try:
                entry = future.result()
            except Exception:  # the other sets are worth playing all the same
                traceback.print_exc()
                failed += 1
                continue
            records.append(entry)
            with args.out.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            times = f"{entry['set']['seconds']:.1f} s"
            print(
                entry["number"],
                times,
                *(" ".join(row["outcomes"]) for row in entry["runs"]),
                sep="; ",
                flush=True,
            )
    text, agree = compare_with_simulation(records, args.keep)
    print(text)
    return int(not agree or failed > 0)


def compare_with_simulation(
    records: list[dict[str, Any]], keep: Path | None = None
) -> tuple[str, bool]:
    """Play the recorded sets of the lab in the simulation; `compare` the two."""
    records = sorted(records, key=lambda entry: entry["number"])
    paces = [measured(entry) for entry in records if not entry["faults"]]
    return compare(records, simulated([entry["number"] for entry in records], paces, keep))


if __name__ == "__main__":
    sys.exit(main())
