"""Two sides against each other: ratios, certainty, differences."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.compare.sides import Side
from orchestrator.errors import UsageError
from orchestrator.mllog.shipped import OWN
from orchestrator.mllog.source import REHEARSED, STAND_IN
from orchestrator.mllog.trimmed import METHOD, Interval, interval, runs_to_settle
from orchestrator.words import count, quoted

NEAR = 0.01
CERTAINTY = {
    "equal": "sure: the whole 95 % interval lies within 1 %",
    "near": "not sure: the 95 % interval includes differences of more than 1 %",
    "apart": "sure of the times, not of the cause: the whole 95 % interval is more than 1 % away",
    "unsure": "not sure: the 95 % interval includes equal times (within 1 %)",
}
"""Verdict -> its certainty. Verdicts without an interval are missing."""
SURE = ("equal", "apart")


@dataclass(frozen=True, slots=True)
class SideDifference:
    """A name with two values; "" if a side lacks it."""

    kind: str
    """`setting`, `environment` or `tunable`"""
    name: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ratios are b / a: with a score ratio above 1, b is slower."""

    a: Side
    b: Side
    score_ratio: float | None
    throughput_ratio: float | None
    samples_ratio: float | None
    interval: Interval | None
    verdict: str
    differences: tuple[SideDifference, ...]
    notes: tuple[str, ...]

    @property
    def runs_to_settle(self) -> int | None:
        """Return the further runs that settle it, of B, and of A unless published; None: unknown,
        or too many."""
        if self.interval is None or self.a.times is None or self.b.times is None:
            return None
        return runs_to_settle(self.a.times, self.b.times, NEAR, both=self.a.kind != "published")

    @property
    def has_verdict(self) -> bool:
        """Return whether it can be decided: only a valid score reproduces a published result."""
        return self.has_scores or not self.with_published

    @property
    def has_scores(self) -> bool:
        return self.a.score is not None and self.b.score is not None

    @property
    def divided(self) -> tuple[float | None, float | None]:
        """Return the times of a and b whose ratio is score_ratio."""
        return divided(self.a, self.b)

    @property
    def same_runs(self) -> bool:
        """Return whether the times agree run for run, in published digits."""
        a, b = sorted(self.a.minutes), sorted(self.b.minutes)
        return bool(a) and len(a) == len(b) and all(map(_alike, a, b))

    def no_interval(self, name: str = "B") -> str:
        """Return why an interval is missing, or "". `name`: of side `b`."""
        if self.interval is not None or self.score_ratio is None:
            return ""
        reasons: dict[str, list[str]] = {}
        for whose, side in (("A", self.a), (name, self.b)):
            if side.times is None:
                reasons.setdefault(_unknown_spread(side), []).append(whose)
        texts = [f"{' and '.join(names)}: {reason}" for reason, names in reasons.items()]
        return f"no interval: {'; '.join(texts) or 'only one side has a valid score'}"

    @property
    def with_published(self) -> bool:
        return "published" in (self.a.kind, self.b.kind)

    @property
    def tone(self) -> str:
        """Return `good` or `bad`, keys of `words.KINDS`, else ""."""
        if self.within_1_percent and self.has_verdict:
            return "good"
        if self.verdict == "unsure":
            return ""
        return "bad" if self.score_ratio is None or self.with_published else ""

    @property
    def outcome(self) -> str:
        """Return the verdict, with its certainty unless sure. Only published results are
        reproduced, or not."""
        if self.score_ratio is None:
            return "cannot be compared: a side has no time"
        if not self.has_verdict:
            return "no verdict without two valid scores"
        if self.verdict == "unsure":
            return "no sure difference"
        if self.same_runs or self.verdict in SURE:
            return self._plainly
        return f"{self._plainly}, {'but not surely' if self.interval else 'certainty unknown'}"

    @property
    def _plainly(self) -> str:
        if self.with_published:
            return "reproduced" if self.within_1_percent else "not reproduced"
        if self.within_1_percent:
            return "the same within 1 %"
        return self.direction

    @property
    def direction(self) -> str:
        return "faster" if (self.score_ratio or 1) < 1 else "slower"

    @property
    def within_1_percent(self) -> bool | None:
        return None if self.score_ratio is None else abs(self.score_ratio - 1) <= NEAR

    def to_json(self) -> dict[str, Any]:
        return {
            "a": _side(self.a),
            "b": _side(self.b),
            "score_ratio": self.score_ratio,
            "throughput_ratio": self.throughput_ratio,
            "samples_ratio": self.samples_ratio,
            "within_1_percent": self.within_1_percent,
            "verdict": self.verdict,
            "confidence": {"method": METHOD, **self.interval.named()} if self.interval else None,
            "runs_to_settle": self.runs_to_settle,
            "differences": [asdict(difference) for difference in self.differences],
            "notes": list(self.notes),
        }


def _unknown_spread(side: Side) -> str:
    if side.kind == "published":
        return "the times of the runs are not known"
    if side.failed > side.dropped:
        return f"more runs failed ({side.failed}) than a score leaves out ({side.dropped})"
    good = side.runs - side.failed
    return f"{count(good, 'successful run')}, at least {2 + 2 * side.dropped} are needed"


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "kind": side.kind,
        "benchmark": side.benchmark,
        "ruleset": side.ruleset,
        "score_minutes": side.score,
        "olympic_mean_minutes": side.mean,
        "normalization_factor": side.factor,
        "samples_per_second": side.rate,
        "samples_to_converge": side.samples,
        "runs": side.runs,
        "problem": side.problem,
        "rehearsal": side.rehearsed,
    }


def compare(a: Side, b: Side) -> Comparison:
    """Compare `b` with `a`. Raises UsageError for different benchmarks, and for rehearsed or
    stand-in runs against a published entry."""
    if a.benchmark and b.benchmark and a.benchmark != b.benchmark:
        raise UsageError(
            f"{a.name} is {a.benchmark} and {b.name} is {b.benchmark}: times of different "
            "benchmarks say nothing of each other",
            hint="orchestrator published --benchmark lists what a set can be compared with",
        )
    if "published" in (a.kind, b.kind):
        for side in (a, b):
            if side.rehearsed or side.stand_in:
                reason = REHEARSED if side.rehearsed else STAND_IN
                raise UsageError(
                    f"{side.name} is not compared with a published result: {reason}",
                    hint=f"orchestrator score {quoted(side.name)} shows its own arithmetic",
                )
    spread = interval(a.times, b.times) if a.times and b.times else None
    ratio = _ratio(*divided(a, b))
    if spread and (a.score is None) != (b.score is None):
        spread = None
    return Comparison(
        a,
        b,
        ratio,
        _ratio(a.rate, b.rate),
        _ratio(a.samples, b.samples),
        spread,
        verdict(ratio, spread),
        tuple(differences(a, b)),
        tuple(_notes(a, b)),
    )


def divided(a: Side, b: Side) -> tuple[float | None, float | None]:
    """Return the scores; without a valid score the means, or only one side would have a factor."""
    if a.score is not None and b.score is not None:
        return a.score, b.score
    return a.mean or a.score, b.mean or b.score


def _alike(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-4)


def _ratio(a: float | None, b: float | None) -> float | None:
    return b / a if a and b and a > 0 and b > 0 else None


def verdict(ratio: float | None, spread: Interval | None) -> str:
    if ratio is None:
        return "none"
    near = abs(ratio - 1) <= NEAR
    if spread is None:
        return "near_unknown" if near else "apart_unknown"
    if near:
        return "equal" if spread.low >= 1 - NEAR and spread.high <= 1 + NEAR else "near"
    return "apart" if spread.high < 1 - NEAR or spread.low > 1 + NEAR else "unsure"


def differences(a: Side, b: Side) -> list[SideDifference]:
    differing = []
    for kind, mine, theirs in (
        ("setting", a.settings, b.settings),
        ("environment", a.environment, b.environment),
        ("tunable", a.tunables, b.tunables),
    ):
        if mine and theirs:
            names = sorted(
                {*mine, *theirs} if "published" not in (a.kind, b.kind) else {*mine} & {*theirs}
            )
            differing += [
                SideDifference(kind, name, mine.get(name, ""), theirs.get(name, ""))
                for name in names
                if mine.get(name) != theirs.get(name)
            ]
    return differing


def _notes(a: Side, b: Side) -> list[str]:
    notes = [f"{side.name} is a {REHEARSED}" for side in (a, b) if side.rehearsed]
    notes += [f"{side.name}: {STAND_IN}" for side in (a, b) if side.stand_in]
    notes += [f"{side.name}: no valid score ({side.problem})" for side in (a, b) if side.problem]
    notes += [f"{side.name}: {text}" for side in (a, b) for text in side.mixed]
    if by_own_rules := [side for side in (a, b) if side.ruleset == OWN]:
        notes += _own_notes(a, b, by_own_rules)
    elif a.ruleset.split(".")[:2] != b.ruleset.split(".")[:2]:
        notes.append(
            f"different rounds: {a.ruleset} and {b.ruleset}; their reference points may differ"
        )
    for side in (a, b):
        if not side.environment:
            what = "published entries" if side.kind == "published" else "plain logs"
            notes.append(f"{side.name}: {what} have no environment or host settings")
    return notes


def _own_notes(a: Side, b: Side, by_own_rules: list[Side]) -> list[str]:
    if len(by_own_rules) == 1:
        other = b if by_own_rules[0] is a else a
        scored = f"{by_own_rules[0].name} is scored by its workload's own rules"
        return [f"{scored}, {other.name} by MLPerf's: no comparison of results"]
    notes = ["both are scored by their workload's own rules: these are no MLPerf scores"]
    if a.goal != b.goal:
        notes.append(
            f"different targets: {a.goal or 'none'} and {b.goal or 'none'}; the ratio means little"
        )
    return notes
