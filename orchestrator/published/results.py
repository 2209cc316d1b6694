"""Published results (workloads/results/published.json), and comparisons with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple

from orchestrator.resources import data_dir

"""Per cent: a comparison names the narrowest step that holds."""


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One published entry. Times are minutes."""

    round: str
    benchmark: str
    submitter: str
    name: str
    """The submitter's name of the system."""
    system: str
    """The matching system of this catalogue; "" if missing."""
    accelerator: str
    nodes: int
    gpus: int
    minutes: float
    """The score."""
    basis: str
    """`quoted` from a result table or an article, or `computed` from the published logs."""
    entry: str
    """MLCommons' entry number, such as 6.0-0036; "" if unknown."""
    mean: float | None
    """Olympic mean before the factor."""
    factor: float | None
    """From the RCP check's scaling.json; None without the file."""
    runs: int
    run_minutes: tuple[float, ...]
    """Each run, if its log was read."""
    fastest: float
    slowest: float
    note: str
    source: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "run_minutes": list(self.run_minutes)}


class OtherResult(NamedTuple):
    """A quoted time of another maker's GPUs, in minutes, from an article that compares AMD's."""

    round: str
    benchmark: str
    accelerator: str
    gpus: int
    minutes: float
    entry: str
    source: str


def others(*, benchmark: str = "", round: str = "") -> list[OtherResult]:
    """Return quoted times; "" matches all."""
    document = json.loads((data_dir("workloads") / "results/published.json").read_bytes())
    wanted = _round(round)
    return [
        result
        for result in (OtherResult(**given) for given in document["others"])
        if (not benchmark or result.benchmark == benchmark.lower())
        and (not wanted or result.round == wanted)
    ]


@cache
def load() -> tuple[PublishedResult, ...]:
    """Return every result: newest round first, then by benchmark and time."""
    document = json.loads((data_dir("workloads") / "results/published.json").read_bytes())
    return tuple(
        PublishedResult(**{**result, "run_minutes": tuple(result["run_minutes"])})
        for result in document["results"]
    )


def find(*, benchmark: str = "", round: str = "", system: str = "") -> list[PublishedResult]:
    """Return the results that match all arguments; "" matches all.

    `round`: 6.0, v6.0 or 6.0.0. `system`: a name of this catalogue, the published name, or a GPU
    such as MI355X, in any case. The catalogue's names win: MI355X_1x8x1 is AMD's entry alone.
    """
    wanted = _round(round)
    return [
        result
        for result in load()
        if (not benchmark or result.benchmark == benchmark.lower())
        and (not wanted or result.round == wanted)
        and (not system or _is(result, system.lower()))
    ]


def _round(name: str) -> str:
    return ".".join(name.lower().removeprefix("v").split(".")[:2])


def _is(result: PublishedResult, system: str) -> bool:
    return system in (result.system.lower(), result.name.lower(), result.accelerator.lower())


def known_names() -> list[str]:
    """Return every `system` that find() accepts."""
    return sorted(
        {
            name
            for result in load()
            for name in (result.system, result.name, result.accelerator)
            if name
        }
    )


def difference(minutes: float, published: PublishedResult) -> float:
    """Return the difference in per cent; negative is faster."""
    return (minutes - published.minutes) / published.minutes * 100


def compare(minutes: float, published: PublishedResult) -> str:
    """Return `8.31 min, 0.5 % slower than the published 8.27 min`."""
    change = wording(difference(minutes, published))
    return f"{minutes:.2f} min, {change} the published {published.minutes:.2f} min"


def sentence(minutes: float, published: PublishedResult) -> str:
    """Return `0.4 % slower than the published 92.36 min (AMD, round 6.0)`."""
    change = wording(difference(minutes, published))
    return f"{change} the published {label(published)}"


def label(published: PublishedResult) -> str:
    """Return `92.36 min (AMD, round 6.0)`."""
    return f"{published.minutes:.2f} min ({published.submitter}, round {published.round})"


def of_set(described: Mapping[str, Any]) -> list[PublishedResult]:
    """Return results for set.json's benchmark, round and system; [] if the set lacks a part of the
    published configuration."""
    if described.get("unmet"):
        return []
    named = {
        key: value
        for key in ("benchmark", "round", "system")
        if isinstance(value := described.get(key), str)
    }
    if len(named) < 3 or not all(named.values()):
        return []
    system = named["system"].lower()
    return [
        result
        for result in find(**named)
        if result.minutes and system in (result.system.lower(), result.name.lower())
    ]


def wording(percent: float) -> str:
    """Return `0.5 % slower than`, `12.0 % faster than` or `equal to`."""
    value = abs(round_half(percent))
    if not value:
        return "equal to"
    return f"{value:.1f} % {'slower' if percent > 0 else 'faster'} than"


def signed(percent: float) -> str:
    """Return `+0.5 %`."""
    return f"{round_half(percent):+.1f} %"


def round_half(percent: float) -> float:
    """Return `percent` to one digit, never negative zero."""
    return round(percent, 1) + 0.0
