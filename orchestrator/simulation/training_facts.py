"""The facts of an entry that decide its trainings' course and log."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from orchestrator.mllog.shipped import OWN
from orchestrator.model.values import Text
from orchestrator.resources import data_dir

if TYPE_CHECKING:
    from orchestrator.model import Entry
    from orchestrator.model.entry import Logged

Value = str | int | float | None


@dataclass(frozen=True)
class TrainingFacts:
    benchmark: str
    ruleset: str
    system: str
    nodes: int
    gpus_per_node: int
    global_batch: int
    round: str = ""
    submitter: str = ""
    accelerator: str = ""
    accumulation: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    logged: Mapping[str, Value] = field(default_factory=dict)
    """Key of the log -> value (`logged` of a workload), without the seed."""
    target: float | None = None
    target_is_upper_bound: bool = True
    minutes_per_run: int = 60

    @property
    def own(self) -> bool:
        """True outside MLPerf's benchmarks."""
        return self.ruleset == OWN

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


def facts_of(entry: Entry) -> TrainingFacts:
    environment = {
        name: value.text for name, value in entry.whole_env.items() if isinstance(value, Text)
    }
    values = {of.key: _logged(of, environment) for of in entry.logged}
    logged = {key: value for key, value in values.items() if value is not None and key != "seed"}
    batch = logged.get("global_batch_size")
    return TrainingFacts(
        benchmark=entry.benchmark,
        ruleset=entry.ruleset,
        system=entry.system,
        nodes=entry.nodes,
        gpus_per_node=entry.gpus_per_node,
        global_batch=batch
        if isinstance(batch, int) and batch > 0
        else entry.global_batch or entry.ranks,
        round=entry.round,
        submitter=entry.submitter,
        accelerator=entry.accelerator,
        accumulation=entry.accumulation or 1,
        environment=environment,
        logged=logged,
        target=entry.target,
        target_is_upper_bound=entry.target_is_upper_bound,
        minutes_per_run=entry.minutes_per_run,
    )


def _logged(of: Logged, environment: Mapping[str, str]) -> Value:
    text = environment.get(of.env, "")
    text = of.form.replace("{}", text) if text else of.value
    return value_of(text) if text else None


def value_of(text: str) -> str | int | float:
    """Return a finite number, else the text."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(text) if text.strip().lstrip("+-").isdecimal() else number


class Behaviour:
    """A benchmark's trainings in an entry's environment (workloads/results/trainings.json)."""

    def __init__(self, facts: TrainingFacts) -> None:
        document = _document()
        self._environment = facts.environment
        self._raw: dict[str, Any] = (
            document["benchmarks"].get(facts.benchmark) or document["benchmarks"]["other"]
        )
        self.known = facts.benchmark in document["benchmarks"]
        self._optional: dict[str, list[str]] = document["optional_keys"]

    def number(self, name: str, default: float = 0.0) -> float:
        value = self._value(self._raw.get(name))
        return value if isinstance(value, (int, float)) else default

    @property
    def curve(self) -> tuple[float, float]:
        height, power = self._raw["curve"]
        return height, power

    @property
    def convergence(self) -> dict[str, Any] | None:
        """Steps to the target by batch size, without reference convergence points."""
        known: dict[str, Any] | None = self._raw.get("convergence")
        return known

    def keys(self) -> dict[str, Value]:
        keys = {name: self._value(raw) for name, raw in self._raw["keys"].items()}
        optional = {
            name: self._value({"env": variables}) for name, variables in self._optional.items()
        }
        return keys | {name: value for name, value in optional.items() if value is not None}

    def _value(self, raw: Any) -> Value:
        if not isinstance(raw, dict):
            value: Value = raw
            return value
        texts = (self._environment.get(variable) for variable in raw.get("env", ()))
        text = next(filter(None, texts), None)
        default: Value = raw.get("default")
        return default if text is None else value_of(text)


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        (data_dir("workloads") / "results/trainings.json").read_bytes()
    )
    return document
