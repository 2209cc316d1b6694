"""Published start-up times (workloads/results/startup.json), from logs."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

from orchestrator.resources import data_dir


class PublishedStartup(NamedTuple):
    """One published set, in seconds; None for times missing in its logs.

    `cold_s`: script start to run_start, for each new container. `warm_s`, `warm_range_s`: median,
    smallest and largest of the other runs. `init_s`: init_start to run_start. `shutdown_s`:
    run_stop to script end. `between_s`: run_stop to the next run_start. `script_s`: start-up plus
    shut-down.
    """

    round: str
    benchmark: str
    submitter: str
    name: str
    system: str
    cold_s: list[float]
    warm_s: float | None
    warm_range_s: list[float] | None
    init_s: float | None
    shutdown_s: float | None
    between_s: float | None
    script_s: float | None
    run_s: float | None

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @property
    def words(self) -> str:
        """Return `HPE HPE-Compute (6.0): start-up cold 435, 431 s, warm 215 s; shut-down 26 s`."""
        parts = []
        if self.cold_s or self.warm_s is not None:
            cold = (
                f"cold {', '.join(f'{seconds:g}' for seconds in self.cold_s)} s"
                if self.cold_s
                else ""
            )
            warm = f"warm {self.warm_s:g} s" if self.warm_s is not None else ""
            parts.append("start-up " + ", ".join(filter(None, (cold, warm))))
        parts += [f"init_start to run_start {self.init_s:g} s"] if self.init_s is not None else []
        parts += [f"shut-down {self.shutdown_s:g} s"] if self.shutdown_s is not None else []
        parts += (
            [f"start-up and shut-down {self.script_s:g} s"] if self.script_s is not None else []
        )
        parts += (
            [f"run_stop to the next run_start {self.between_s:g} s"]
            if self.between_s is not None
            else []
        )
        return f"{self.submitter} {self.name} (round {self.round}): {'; '.join(parts)}"


@cache
def load() -> tuple[PublishedStartup, ...]:
    rows = json.loads((data_dir("workloads") / "results/startup.json").read_bytes())["sets"]
    return tuple(PublishedStartup(**row) for row in rows)


def find(benchmark: str, round: str, system: str) -> list[PublishedStartup]:
    """Return start-up times of a catalogue's system; `round` such as 6.0 or 6.0.0."""
    wanted = ".".join(round.split(".")[:2])
    return [
        startup
        for startup in load()
        if (startup.benchmark, startup.round, startup.system) == (benchmark, wanted, system)
    ]
