"""The outlook of an unfinished set: its score, chance to pass RCP, affordable failures.

The missing runs are drawn up to 1,000 times from the reference's sample counts (scaled to this
batch size, with a weight of four runs) and from the runs so far, also drawn (a Pólya urn). A
run's time is its samples times a finished run's time per sample, with half a percent of spread, a
common drift, and sometimes a slow node. The same runs give the same forecast.
"""

from __future__ import annotations

import math
from itertools import pairwise

from orchestrator.mllog.numbers import positive
from orchestrator.mllog.olympic import olympic_mean
from orchestrator.mllog.rcp import FAILED, RcpTable, table
from orchestrator.words import count, duration, train_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from orchestrator.mllog.result import RunScore, Score

DRAWS = 1000
MOST_DRAWN = 200_000
"""Runs in all draws: a second's work."""
REFERENCE_WEIGHT = 4.0
SPREAD = 0.005
DRIFT = 0.012
"""Relative spread that all missing runs share: another day, nodes, load."""
SLOW_SHARE = 0.03
"""Share of missing runs on a slower node or network, by up to SLOW_BY."""
SLOW_BY = 0.15
FALLBACK_SPREAD = 0.12
"""Relative spread of samples to converge without a reference, as in published tables."""


def forecast(score: Score, minutes_left: float | None = None) -> dict[str, Any]:
    """Return the outlook of a set with missing runs, and its `text`."""
    good = [run for run in score.runs if run.use != "bad" and run.minutes is not None]
    failed = len(score.runs) - len(good)
    missing = score.runs_required - len(score.runs)
    outlook: dict[str, Any] = {
        "runs_seen": len(score.runs),
        "runs_missing": missing,
        "failures_affordable": max(0, score.dropped - failed),
        "can_become_valid": True,
        "never_because": _dead(score, failed),
        "text": [],
    }
    outlook["can_become_valid"] = not outlook["never_because"]
    if outlook["never_because"]:
        outlook["text"].append(
            f"this set can no longer become valid: {'; '.join(outlook['never_because'])}"
        )
        return outlook
    if good:
        outlook.update(_draw(score, good, failed, missing))
    outlook.update(_fit(score, good, missing, minutes_left))
    outlook["text"] = _text(outlook)
    return outlook


def _dead(score: Score, failed: int) -> list[str]:
    """Return the problems that no further run can fix."""
    reasons = []
    if failed > score.dropped:
        reasons.append(f"{count(failed, 'bad run')}, {score.dropped} allowed")
    unreadable = [run.file for run in score.runs if run.fatal]
    if unreadable:
        reasons.append(f"mlperf-logging cannot read {', '.join(unreadable)}")
    if score.rcp and score.rcp.refused and score.runs:
        reasons.append(score.rcp.message)
    if not score.seeds_ok:
        reasons.append("the seed check fails")
    return reasons


class _Urn:
    """The distribution of the missing runs."""

    def __init__(self, score: Score, good: list[RunScore]) -> None:
        self.counts = [positive(run.samples) or math.nan for run in good]
        counted = all(math.isfinite(count) for count in self.counts)
        if not counted:
            # Without sample counts draw the times themselves, as samples at one minute each.
            self.counts = [float(run.minutes or 0.0) for run in good]
        self.rates = [
            (run.minutes or 0.0) / count
            for run, count in zip(good, self.counts, strict=True)
            if count > 0
        ] or [1.0]
        self.table = _table(score) if counted else None
        self.reference = _reference(score.batch_size, self.table) or _spread_around(self.counts)
        # The finished runs show how far a submission's mean differs from the reference's.
        centre = sum(self.reference) / len(self.reference)
        shift = sum(self.counts) / len(self.counts) / centre
        weight = len(self.counts) / (len(self.counts) + REFERENCE_WEIGHT)
        self.reference = [count * (1 + weight * (shift - 1)) for count in self.reference]

    def draw(self, number: int, chance: Random) -> tuple[list[float], list[float]]:
        """Return (samples, minutes) of missing runs."""
        counts, minutes, drift = list(self.counts), [], 1 + chance.gauss(0, DRIFT)
        for _ in range(number):
            is_known = chance.random() * (len(counts) + REFERENCE_WEIGHT) < len(counts)
            counts.append(chance.choice(counts if is_known else self.reference))
            rate = chance.choice(self.rates) * drift * (1 + chance.gauss(0, SPREAD))
            if chance.random() < SLOW_SHARE:
                rate *= 1 + chance.random() * SLOW_BY
            minutes.append(counts[-1] * rate)
        return counts[len(self.counts) :], minutes


def _table(score: Score) -> RcpTable | None:
    if score.division != "closed" or not isinstance(score.benchmark, str):
        return None
    return table(score.ruleset, score.benchmark)


def _reference(batch_size: Any, points: RcpTable | None) -> list[float]:
    try:
        point = points.point(batch_size)[0] if points else None
    except TypeError:
        return []
    # 19 normal quantiles with the point's mean and deviation.
    return [point.mean + point.stdev * quantile for quantile in _QUANTILES] if point else []


def _spread_around(counts: list[float]) -> list[float]:
    mean = sum(counts) / len(counts)
    return [mean * (1 + FALLBACK_SPREAD * quantile) for quantile in _QUANTILES]


# Standard normal quantiles at 5 %, 10 %, ... 95 %.
_QUANTILES = (
    -1.645,
    -1.282,
    -1.036,
    -0.842,
    -0.674,
    -0.524,
    -0.385,
    -0.253,
    -0.126,
    0.0,
    0.126,
    0.253,
    0.385,
    0.524,
    0.674,
    0.842,
    1.036,
    1.282,
    1.645,
)


def _draw(score: Score, good: list[RunScore], failed: int, missing: int) -> dict[str, Any]:
    from random import Random  # not for a set that can no longer become valid

    if not all(positive(run.minutes) for run in good):
        return {}
    urn, chance = _Urn(score, good), Random(len(score.runs))
    if len(good) == 1 and urn.table is None:
        return {}  # a single run shows no spread, and no reference point does
    seen = [float(run.minutes or 0.0) for run in good]
    seen_samples = [FAILED if run.samples is None else run.samples for run in score.runs]
    outcomes, passes = [], 0
    # One in forty runs fails, a bit more if runs have failed.
    risk = (failed + 0.25) / (len(score.runs) + 10)
    valid = 0
    draws = min(DRAWS, max(1, MOST_DRAWN // missing))
    for _ in range(draws):
        counts, minutes = urn.draw(missing, chance)
        lost = sum(chance.random() < risk for _ in counts)
        if lost:
            counts[-lost:], minutes = [FAILED] * lost, minutes[:-lost]
        factor, passed = _rcp(score, urn, [*seen_samples, *counts], failed + lost)
        passes += passed
        mean = olympic_mean([*seen, *minutes], failed + lost, score.dropped)
        if mean is not None and passed:
            valid += 1
            outcomes.append(mean * factor)
    outcomes.sort()
    answer: dict[str, Any] = {
        "rcp_pass_chance": passes / draws if urn.table else None,
        "valid_chance": valid / draws,
    }
    if outcomes:
        low, high = (
            outcomes[int(0.03 * len(outcomes))],
            outcomes[min(len(outcomes) - 1, int(0.97 * len(outcomes)))],
        )
        answer |= {
            "score_range_minutes": [outcomes[0], outcomes[-1]],
            "score_90_minutes": [low, high],
            "score_middle_minutes": outcomes[len(outcomes) // 2],
        }
    return answer


def _rcp(score: Score, urn: _Urn, samples: list[Any], failed: int) -> tuple[float, bool]:
    """Return (normalisation factor, passed) of a drawn set."""
    if urn.table is None:
        return 1.0, True
    result = urn.table.check(score.batch_size, samples if failed <= score.dropped else None)
    return (result.factor, True) if result.passed else (1.0, False)


def _fit(
    score: Score, good: list[RunScore], missing: int, minutes_left: float | None
) -> dict[str, Any]:
    """Return the missing runs' time, with pauses, and whether it fits."""
    if not good:
        return {}
    begins = sorted(run.start for run in good if run.start is not None)
    each = sum(run.minutes or 0.0 for run in good) / len(good)
    gaps = sorted((later - earlier) / 60000 for earlier, later in pairwise(begins))
    # From start to start: with the time between runs. The median ignores pauses of days.
    cycle = max(each, gaps[len(gaps) // 2]) if gaps else each
    needed = -(-missing // _at_once(good)) * cycle
    answer: dict[str, Any] = {"minutes_per_run": each, "minutes_needed": needed}
    if minutes_left is not None:
        answer |= {"minutes_left": minutes_left, "fits": needed <= minutes_left}
    return answer


def _at_once(good: list[RunScore]) -> int:
    """Count the runs active at the same time, on separate nodes."""
    spans = [
        (run.start, run.stop) for run in good if run.start is not None and run.stop is not None
    ]
    return (
        max((sum(start <= at < stop for start, stop in spans) for at, _ in spans), default=1) or 1
    )


def _text(outlook: dict[str, Any]) -> list[str]:
    missing, seen = outlook["runs_missing"], outlook["runs_seen"]
    most = f"at most {bad}" if (bad := outlook["failures_affordable"]) else "none"
    left = f"{missing} of {count(missing + seen, 'run')} {'has' if missing == 1 else 'have'}"
    lines = [f"{left} no result; {most} may miss the target"]
    if "score_90_minutes" in outlook:
        likely, every = (
            " to ".join(map(train_time, outlook[name]))
            for name in ("score_90_minutes", "score_range_minutes")
        )
        sure = f"{likely} with 90 % probability, " if likely != every else ""
        lines.append(f"score: {sure}{every} in all draws")
    if outlook.get("rcp_pass_chance") is not None:
        lines.append(f"chance to pass the RCP test: {outlook['rcp_pass_chance']:.0%}")
    if "minutes_needed" in outlook:
        fits = outlook.get("fits")
        more = (
            ""
            if fits is None
            else f"; {duration(60 * outlook['minutes_left'])} are left: "
            f"{'it fits' if fits else 'IT DOES NOT FIT'}"
        )
        lines.append(f"they need about {duration(60 * outlook['minutes_needed'])}{more}")
    return lines
