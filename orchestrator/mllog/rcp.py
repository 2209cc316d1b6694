"""Reference convergence points: does a set need as many samples as the reference needs?

Source of every rule: mlperf_logging/rcp_checker/rcp_checker.py. Its code, not the written rules,
decides submissions: the standard deviation is that of all reference runs, the mean that without the
smallest and largest.
"""

from __future__ import annotations

import math

from orchestrator.frozen import Frozen
from orchestrator.mllog.numbers import finite
from orchestrator.mllog.olympic import dropped_per_side, kept
from orchestrator.mllog.rules import data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAILED = 1e9
"""Samples to converge of a run that did not converge."""

LARGEST_BATCH = 1e9
"""The referee knows no larger batch size."""

TOLERANCE = 0.0001
"""Width at which the referee's bisection for the limit ends."""

RELAXED = {"llama31_405b": 46080}
"""Samples that the referee subtracts from the limit (rounds 5.0.0 and later)."""


EXACT, BETWEEN = "RCP found", "RCP Interpolation"
BELOW_ALL = "RCP not found but slower convergence on smaller batch size"


class Point(Frozen):
    """A reference convergence point, tabulated or interpolated. `limit` is the smallest acceptable
    mean."""

    batch_size: float
    mean: float
    stdev: float
    limit: float


class RcpResult(Frozen):
    """Outcome of the test. `point`: the set's reference; `factor`: of normalisation, for a passing
    set; `refused`: the referee ends with a traceback; `converged`: all counted runs did."""

    passed: bool
    message: str
    point: Point | None = None
    submission_mean: float | None = None
    factor: float = 1.0
    refused: bool = False
    converged: bool = True

    @property
    def shown_mean(self) -> float | None:
        """Return the mean of the samples to converge; None with a run that did not converge."""
        return finite(self.submission_mean) if self.converged else None

    @property
    def verdict(self) -> str:
        """`passed (reference convergence point of batch size 2048)`, or the referee's text."""
        word = "passed" if self.passed else "failed"
        if self.point is None or self.message not in (EXACT, BETWEEN):
            return f"{word} ({self.message})"
        way = "" if self.message == EXACT else "interpolated "
        return (
            f"{word} ({way}reference convergence point of batch size {self.point.batch_size:.10g})"
        )

    def to_json(self) -> dict[str, Any]:
        point = self.point
        return {
            "pass": self.passed,
            "message": self.message,
            "batch_size": point.batch_size if point else None,
            "mean": point.mean if point else None,
            "stdev": point.stdev if point else None,
            "min_acceptable_mean": point.limit if point else None,
            "submission_mean": self.submission_mean,
        }


class RcpTable:
    """A benchmark's reference points in a round: all, and the pruned list."""

    def __init__(
        self, benchmark: str, raw: list[list[Any]], runs: int, t95: dict[str, float]
    ) -> None:
        self.benchmark = benchmark
        self.runs = runs
        self._t95 = t95
        self.points = [self._tabulated(batch_size, samples) for batch_size, samples in raw]
        self.pruned = self._prune(self.points)

    def _tabulated(self, batch_size: float, samples: list[float]) -> Point:
        rejected = dropped_per_side(self.benchmark)
        ordered = sorted(samples)
        kept = ordered[rejected : len(ordered) - rejected]
        mean = sum(kept) / len(kept)
        centre = sum(ordered) / len(ordered)
        stdev = math.sqrt(sum((value - centre) ** 2 for value in ordered) / len(ordered))
        return Point(batch_size, mean, stdev, self._limit(mean, stdev, len(kept)))

    def _limit(self, mean: float, stdev: float, reference_runs: int) -> float:
        """Return the smallest mean that a one-sided t-test at 0.05 does not distinguish from the
        reference's.

        The referee's bisection from (0, mean) down to a width of 1e-4, with its test's closed form:
        the same verdict right at the limit.
        """
        if stdev == 0:
            return mean
        runs = self.runs - 2
        spread = stdev * math.sqrt(1 / reference_runs + 1 / runs)
        exact = mean - self._t95[str(reference_runs + runs - 2)] * spread
        low, high = 0.0, mean
        middle = (low + high) / 2
        while high - low > TOLERANCE:
            if middle > exact:
                high = middle
            else:
                low = middle
            middle = (low + high) / 2
        return middle

    def between(self, batch_size: float, low: Point, high: Point) -> Point:
        mean = _interpolate(batch_size, low.batch_size, low.mean, high.batch_size, high.mean)
        stdev = _interpolate(batch_size, low.batch_size, low.stdev, high.batch_size, high.stdev)
        return Point(batch_size, mean, stdev, self._limit(mean, stdev, self.runs * 2))

    def _prune(self, points: list[Point]) -> list[Point]:
        """Drop points below the fastest converging batch size, then points above their neighbours'
        line."""
        fastest = min(points, key=lambda point: point.mean)
        kept = [point for point in points if point.batch_size >= fastest.batch_size]
        index = 1
        while index < len(kept) - 1:
            low, point, high = kept[index - 1 : index + 2]
            line = _interpolate(
                point.batch_size, low.batch_size, low.mean, high.batch_size, high.mean
            )
            if point.mean > line:
                # The referee checks the same position again, and never an earlier one: not quite a
                # convex hull.
                del kept[index]
            else:
                index += 1
        return kept

    def check(self, batch_size: Any, samples: list[Any] | None) -> RcpResult:
        """Test a set's batch size and samples to converge (FAILED for a failed run; None if too
        many runs failed). Never raises: `refused` covers the referee's own failures."""
        if batch_size == -1:
            return RcpResult(False, "Could not detect global_batch_size")
        if samples is None:
            return RcpResult(False, "Insufficient convergence")
        try:
            return self._check(batch_size, samples)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            return RcpResult(
                False,
                f"batch size {batch_size!r} or the samples to converge are not numbers: {error}",
                refused=True,
            )

    def _check(self, batch_size: Any, samples: list[Any]) -> RcpResult:
        point, message = self.point(batch_size)
        if point is None:
            return RcpResult(False, message)
        result = self._compare(point, samples, message)
        if not result.passed and message == BELOW_ALL:
            return result.replace(message=_missing(batch_size))
        return result

    def point(self, batch_size: Any) -> tuple[Point | None, str]:
        """Return a batch size's reference point, and the referee's message. TypeError for no
        number."""
        same = next((point for point in self.pruned if point.batch_size == batch_size), None)
        if same:
            return same, EXACT
        smaller = [point for point in self.pruned if 0 < point.batch_size < batch_size]
        larger = [point for point in self.pruned if batch_size < point.batch_size < LARGEST_BATCH]
        if smaller and larger:
            return self.between(batch_size, smaller[-1], larger[0]), BETWEEN
        if larger:
            return larger[0], BELOW_ALL
        return None, _missing(batch_size) if smaller else "Cannot find any RCPs"

    def _compare(self, point: Point, samples: list[Any], message: str) -> RcpResult:
        limit = point.limit - RELAXED.get(self.benchmark, 0)
        counted = kept(samples, dropped=dropped_per_side(self.benchmark))
        if not counted:
            return RcpResult(False, f"too few runs for the RCP test ({len(samples)})", point)
        mean = float(sum(counted)) / len(counted)
        # The referee's own arithmetic at the limit: mean / (mean / limit).
        passed = mean >= point.mean / (point.mean / limit)
        shown = Point(point.batch_size, point.mean, point.stdev, limit)
        ratio = point.mean / mean if mean else math.inf
        factor = 1.0 if ratio < 1 else ratio
        return RcpResult(passed, message, shown, mean, factor, converged=FAILED not in counted)


def _missing(batch_size: Any) -> str:
    return f"Missing RCP, please submit RCP with BS = {batch_size}"


def _interpolate(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    return (y1 - y0) / (x1 - x0) * (x - x0) + y0


_TABLES: dict[str, dict[str, Any]] = {}
_READY: dict[tuple[str, str], RcpTable] = {}


def table(ruleset: str, benchmark: str) -> RcpTable | None:
    """Return a benchmark's table in a round such as `6.0.0`, or None."""
    if ruleset == "own":  # a workload's own rules have no reference
        return None
    if ruleset not in _TABLES:
        _TABLES[ruleset] = data("rcp", ruleset)
    raw = _TABLES[ruleset]
    if benchmark not in raw["tables"]:
        return None
    key = (ruleset, benchmark)
    if key not in _READY:
        _READY[key] = RcpTable(
            benchmark, raw["tables"][benchmark], raw["submission_runs"][benchmark], raw["t95"]
        )
    return _READY[key]
