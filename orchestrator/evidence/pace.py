"""The rule for slow nodes, of `orchestrator nodes` and of the report.

Bandwidth: the verdict of the bandwidth test is final; without one its rule applies
(onnode/policy/bandwidth.py). Time: notably later or longer, by a second and 2 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.words import rate

NAMED = ("slow", "no all-reduce with it", "its own GPUs")
"""Starts of the bandwidth test's verdicts on a slow node; other texts concern all nodes, or
silence."""
NOTABLE_S, NOTABLE_SHARE = 1.0, 0.02


def notable(more_s: float, of_s: float) -> bool:
    """Return whether `more_s` seconds more than the `of_s` of others are beyond chance."""
    return more_s > max(NOTABLE_S, NOTABLE_SHARE * of_s)


@dataclass(frozen=True, slots=True)
class Pace:
    """The known speed of a node; unknown values are None.

    `gbps` is its best bandwidth, `judged` whether the bandwidth test had a verdict, `deep` its text
    unless passed. `seconds` is the mean of its good attempts, `relative` that over the other nodes'
    time. `rate_with` and `rate_without` are the mean samples per second of the good runs with and
    without it: times to train also vary with the seeds.
    """

    node: str
    gbps: float | None = None
    way: str = ""
    judged: bool = False
    deep: str = ""
    seconds: float | None = None
    relative: float | None = None
    rate_with: float | None = None
    rate_without: float | None = None


def signs(paces: Sequence[Pace]) -> list[str]:
    """Return sentences about nodes that look slow, each with its evidence."""
    good = _good(paces)
    return [
        text
        for pace in paces
        for text in (_bandwidth(pace, good.get(pace.way, 0)), _longer(pace), _with(pace))
        if text
    ]


def _good(paces: Sequence[Pace]) -> dict[str, float]:
    """Return the bandwidth of good nodes by way."""
    measured = [pace for pace in paces if pace.gbps]
    if not measured:
        return {}
    from orchestrator.onnode.policy.bandwidth import upper_quartile

    return {
        way: upper_quartile(pace.gbps or 0 for pace in measured if pace.way == way)
        for way in {pace.way for pace in measured}
    }


def _bandwidth(pace: Pace, good: float) -> str:
    if pace.judged:
        return (
            f"{pace.node} in the bandwidth test: {pace.deep}" if pace.deep.startswith(NAMED) else ""
        )
    if pace.gbps is None:
        return ""
    from orchestrator.onnode.policy.bandwidth import too_slow

    if not too_slow(pace.gbps, good, pace.way):
        return ""
    return (
        f"{pace.node} reached {pace.gbps:.1f} GB/s in the bandwidth test, "
        f"good nodes {good:.1f} GB/s"
    )


def _longer(pace: Pace) -> str:
    if not pace.relative or pace.seconds is None:
        return ""
    others_s = pace.seconds / pace.relative
    if not notable(pace.seconds - others_s, others_s):
        return ""
    longer = f"{100 * (pace.relative - 1):.1f} % longer"
    return f"{pace.node} took {longer} than the other nodes in its runs"


def _with(pace: Pace) -> str:
    if not pace.rate_with or not pace.rate_without or pace.seconds is None:
        return ""
    slower = pace.rate_without / pace.rate_with
    others_s = pace.seconds * pace.rate_with / pace.rate_without
    if not notable(pace.seconds - others_s, others_s):
        return ""
    return (
        f"runs with {pace.node} were {100 * (slower - 1):.1f} % slower per sample: "
        f"{rate(pace.rate_with, 5)} samples/s, those without it {rate(pace.rate_without, 5)}"
    )
