"""A set's trainings: one script for each attempt, shared by its nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from orchestrator.simulation.engine import Engine
from orchestrator.simulation.machine import Machine
from orchestrator.simulation.node_run import Part, TrainingRun
from orchestrator.simulation.training import Script, Trainings


class SetTrainings:
    def __init__(
        self, engine: Engine, machines: Mapping[str, Machine], trainings: Trainings
    ) -> None:
        self._engine, self._machines, self._trainings = engine, machines, trainings
        self._misses: frozenset[int] = frozenset()
        self._logs_on = 0
        self.overlaps: list[str] = []
        """Attempts started by two jobs."""
        self._owners: dict[int, str] = {}
        self._scripts: dict[int, Script] = {}
        self._starts: dict[int, list[Callable[[float], object]]] = {}
        self._before: dict[int, list[Callable[[], object]]] = {}

    def vary(self, *, misses: frozenset[int] = frozenset(), logs_on: int = 0) -> None:
        """Let runs miss their target, and another rank log, as in programs that number processes by
        host name."""
        self._misses, self._logs_on = misses, logs_on

    @property
    def source(self) -> str:
        """Of the run length."""
        return self._trainings.source

    @property
    def lengths(self) -> list[float]:
        return [script.seconds for script in self._scripts.values()]

    def when_run_starts(self, run: int, action: Callable[[float], object]) -> None:
        """Call `action` with the expected seconds at a run's first start."""
        self._starts.setdefault(run, []).append(action)

    def when_run_is_prepared(self, run: int, action: Callable[[], object]) -> None:
        """Call `action` when nodes first prepare a run."""
        self._before.setdefault(run, []).append(action)

    def prepare(self, run: int) -> None:
        for action in self._before.pop(run, ()):
            action()

    def part(self, run: TrainingRun) -> Part:
        post = run.agent.post
        job = post.environment["ORCH_JOB_ID"]
        if self._owners.setdefault(run.seed, job) != job:
            self.overlaps.append(
                f"attempt {run.id} was started by the jobs {self._owners[run.seed]} and {job}"
            )
        if run.seed not in self._scripts:
            self._scripts[run.seed] = self._script(run)
            for action in self._starts.pop(run.request.run, ()):
                action(self._scripts[run.seed].seconds)
        script = self._scripts[run.seed]
        logs = run.rank == min(self._logs_on, post.settings.nnodes - 1)
        lines = script.lines if logs else ((0.5, b"rank %d is up\n" % run.rank),)
        return Part(lines, script.seconds + self._engine.between(0.0, 0.3))

    def _script(self, run: TrainingRun) -> Script:
        return self._trainings.script(
            seed=run.seed,
            start_ms=run.start_ms,
            chance=random.Random(f"{self._engine.seed}/{run.seed}"),
            misses=run.request.run in self._misses,
            pace=max(self._machines[node].slow for node in run.request.nodes),
        )
