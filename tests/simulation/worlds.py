"""Sets in a simulated world, for tests: planned failures, and the set afterwards as a reader sees it.

    world = sets.make(nodes=2, spares=1, nexp=3)
    world.plan = lambda me: exits(3) if me[:3] == (2, 1, 0) else None     # run 2, attempt 1, rank 0
    assert world.play() == 0 and world.set.outcomes(2) == ["infrastructure", "success"]

After each test all faults end, the set is resumed until it is complete, and every invariant is checked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from run_sets import Set
from seeded_sets import SYSTEM, violations

from orchestrator.model import Site, load_entry
from orchestrator.simulation import faults
from orchestrator.simulation.desk import User
from orchestrator.simulation.engine import NEVER
from orchestrator.simulation.machine import Machine, NodeCondition
from orchestrator.simulation.node_run import Part, TrainingRun
from orchestrator.simulation.play import Simulation
from orchestrator.simulation.rendered import Rendered
from orchestrator.simulation.slurm import SimJob

RUN_S = 600.0
LIMIT_S = 30 * 86400.0
PATIENCE_S = 120.0
"""The lease of a killed job runs out in this time."""


class Me(NamedTuple):
    """A node in an attempt."""

    run: int
    attempt: int
    rank: int
    node: str


class Ends(NamedTuple):
    """How a node's part of a training ends: `after` seconds, with `code`, or never (None: it hangs).

    NEVER as `after`: it first prints everything that a good run prints.
    """

    code: int | None
    after: float
    text: str = ""


Plan = Callable[[Me], "Ends | Part | None"]
"""Return the end of a node's part, or the part; None: all goes well."""


def exits(code: int, text: str = "", *, after: float = 60.0) -> Ends:
    return Ends(code, after, text)


def hangs(*, after: float = 60.0) -> Ends:
    return Ends(None, after)


def well(me: Me) -> None:
    """Plan nothing."""


class World(Simulation):
    """One set and its cluster; the nodes are n1, n2, ..."""

    def __init__(self, bundle: Rendered, folder: Path, nodes: int, seed: int) -> None:
        names = [f"n{k}" for k in range(1, nodes + 1)]
        super().__init__(bundle, folder, seed, names, user=User(resumes=0), run_seconds=RUN_S)
        self.cluster.keep_jobs(LIMIT_S)  # tests look at jobs that have ended
        self.plan: Plan = well
        self.ran: list[tuple[float, Me]] = []
        """Each part of a training: when it started, in virtual seconds."""

    def _part(self, run: TrainingRun) -> Part:
        me = Me(run.request.run, run.request.attempt, run.rank, run.agent.name)
        self.ran.append((self.engine.now, me))
        usual, ends = super()._part(run), self.plan(me)
        if not isinstance(ends, Ends):
            return ends or usual
        lines = tuple(line for line in usual.lines if line[0] <= ends.after)
        end_s = min(ends.after, usual.seconds)
        if ends.text:
            lines += ((end_s, f"{ends.text}\n".encode()),)
        return Part(lines, NEVER) if ends.code is None else Part(lines, end_s, ends.code)

    # ---- what goes wrong ----

    def fault(self, sentence: str) -> None:
        """Plant a fault such as `node 3 dies in run 2`; without a time it happens now."""
        if re.search(r" (in|before|at the end of) run | at [0-9]", sentence):
            faults.plant(self, faults.parse(sentence))
        else:
            fault = faults.parse(f"{sentence} at 0 s")
            faults.happen(self, fault)

    def machine(self, number: int) -> Machine:
        return self.machines[f"n{number}"]

    def signal(self, number: int) -> None:
        """Send a signal to the loop alone, as scancel --batch and `orchestrator cancel` do."""
        self.jobs.signal(self.last_job, number, batch_only=True)

    def kill_job(self) -> None:
        """Kill the loop and its processes; return after its lease."""
        self.jobs.kill(self.last_job)
        self.wait(PATIENCE_S)

    # ---- to its end ----

    @property
    def last_job(self) -> SimJob:
        return self.all_jobs[-1]

    def start(self) -> World:
        """Submit the set, or its missing runs."""
        self.submit() if self.run_set is None else self.resume()
        return self

    def end(self) -> int:
        """Wait for the end of all jobs; return the last exit status."""
        self.engine.run(self.idle, self.engine.now + LIMIT_S)
        assert not self.done[-1].error, self.done[-1]
        return self.last_job.exit_code[0]

    def play(self) -> int:  # type: ignore[override]
        """Submit the set, or its missing runs, and wait; return the exit status of the job."""
        return self.start().end()

    def play_until(self, happens: Callable[[], bool]) -> World:
        self.engine.run(happens, self.engine.now + LIMIT_S)
        return self

    def running(self, run: int, attempt: int = 1, *, seconds: float = 30.0) -> World:
        """Play until an attempt has run for `seconds`."""
        self.play_until(lambda: any(me[:2] == (run, attempt) for _, me in self.ran))
        return self.wait(seconds)

    def wait(self, seconds: float) -> World:
        """Let virtual time pass."""
        over: list[bool] = []
        self.engine.after(seconds, lambda: over.append(True))
        return self.play_until(lambda: bool(over))

    @property
    def set(self) -> Set:
        assert self.run_set is not None, self.done
        return Set(self.run_set.layout.root)

    @property
    def out(self) -> str:
        """The output of all jobs, in order."""
        outputs = sorted(self.set.root.glob("job_*.out"), key=lambda path: path.stat().st_mtime_ns)
        return "".join(path.read_text() for path in outputs)

    @property
    def notices(self) -> list[dict[str, Any]]:
        """The messages sent to people, in order."""
        return [json.loads(order)["message"] for order in self.jobs.notifications]

    def most_at_once(self) -> dict[str, int]:
        """Return the most simultaneous attempts: of each node, and of "all"."""
        changes: list[tuple[int, int, str]] = []
        for run, attempt in {me[:2] for _, me in self.ran}:
            state = self.set.attempt(run, attempt)
            for name in ("all", *state["nodes"]):
                changes += [(state["start_ms"], 1, name), (state["end_ms"], -1, name)]
        now, most = Counter[str](), Counter[str]()
        for _, change, name in sorted(changes):
            now[name] += change
            most[name] = max(most[name], now[name])
        return dict(most)

    def finish(self) -> None:
        """End all faults, resume the set until it is complete, and check every invariant."""
        self.plan = well
        self.user.allows_changes = True
        self.server.faults.none()
        for name, machine in self.machines.items():
            if not machine.up:
                self.jobs.power_on(name)
                self.cluster.node_up(name, rebooted=True)
            machine.condition, machine.slow = NodeCondition(), 1.0
        self.engine.run(self.idle, self.engine.now + LIMIT_S)
        for _ in range(3):
            if self.missing():
                self.wait(PATIENCE_S).play()
        self.settle()
        found = list(violations(self))
        assert found == [], "\n".join(found)


class Sets:
    """Makes worlds in one folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._world: World | None = None

    def make(
        self,
        plan: Plan = well,
        *,
        nodes: int = 2,
        spares: int = 0,
        nexp: int = 2,
        seed: int = 1,
        world: type[World] = World,
        **site: Any,
    ) -> World:
        """Return a world whose set has `nexp` runs on `nodes` nodes each. `site`: keys of the site."""
        self.close()
        wide = (
            (nodes + spares)
            if "side_by_side" not in site
            else nodes * site["side_by_side"] + spares
        )
        keys = json.dumps({"spares": spares, **site})
        self._world = world(_bundle(self._folder, nodes, nexp, keys), self._folder, wide, seed)
        self._world.plan = plan
        return self._world

    def forget(self) -> None:
        """Neither resume nor check the last world."""
        if self._world is not None:
            self._world.close()
        self._world = None

    def close(self) -> None:
        world, self._world = self._world, None
        if world is None:
            return
        with closing(world):
            if world.run_set is not None:
                world.finish()


@cache
def _bundle(folder: Path, nodes: int, nexp: int, keys: str) -> Rendered:
    """Render the bundle of all worlds with these keys of the site."""
    place = folder / "systems"
    place.mkdir(exist_ok=True)
    (place / f"nodes_{nodes}.yaml").write_text(SYSTEM % (nodes, nodes, 8 * nodes))
    own = {"container": {"engine": "docker"}, "time_limit": "7-00:00:00", **json.loads(keys)}
    own["limits"] = {"attempts": 2, "run_timeout_minutes": 60, **own.get("limits", {})}
    site = Site(scheduler="slurm", partition="batch", log_dir=str(folder / "sets"), **own)
    entry = load_entry(f"nodes_{nodes}", "builtin", site=site, systems_dirs=[place])
    return Rendered(entry, nexp, programs=False)
