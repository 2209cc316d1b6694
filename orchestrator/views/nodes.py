"""The nodes of a set as parts: history, groups, start-up, remarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from orchestrator.nodes.names import fold
from orchestrator.views.figures import MISSING, Unit, seconds, unit_of_runs
from orchestrator.views.parts import Bullets, Paragraph, Part, Table
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.evidence.nodes import NodeGroup, NodeHistory
    from orchestrator.evidence.startup import StartUp
    from orchestrator.onnode.kernel.records import SetRecord
    from orchestrator.published.startup import PublishedStartup


def unit_of(history: Iterable[NodeHistory]) -> Unit:
    """Return the unit for these nodes' times to train."""
    return unit_of_runs(
        minutes for one in history for minutes in (one.minutes_with, one.minutes_without)
    )


LEGEND = {
    "mean": "average wall time of a node in its good attempts",
    "last": "its wall time in its last attempt",
    "with": "mean time to train of the good runs with it (plain, not olympic)",
    "without": "that of the good runs without it",
}


def summary(history: Sequence[NodeHistory], unit: Unit) -> Table:
    """Return a row per node.

    `vs others`: its time over the other nodes' in the same attempts.
    """
    header = (
        "node", "rank", "good", "failed", "mean", "last", "vs others", "with", "without",
        "exit codes", "GB/s", "preflight",
    )  # fmt: skip
    return Table(
        "What each node did",
        header,
        [_summary_row(one, unit) for one in history],
        numeric=(1, 2, 3, 4, 5, 6, 7, 8, 10),
        states=(11,),
        leave=("last", "exit codes", "without", "with", "mean"),
        legend=LEGEND,
    )


def _summary_row(one: NodeHistory, unit: Unit) -> tuple[str, ...]:
    waiting = "waits" if one.waits else "spare" if one.spare else MISSING
    return (
        one.node,
        ",".join(map(str, one.ranks)) or waiting,
        str(one.good),
        str(one.failed),
        seconds(one.mean_s),
        _last(one),
        MISSING if one.relative is None else f"{one.relative:.3f}",
        unit.full(one.minutes_with),
        unit.full(one.minutes_without),
        ",".join(map(str, one.exits)) or MISSING,
        MISSING if one.gbps is None else f"{one.gbps:.1f}",
        one.preflight.verdict if one.preflight else MISSING,
    )


def _last(one: NodeHistory) -> str:
    """Return the wall time of its last attempt, and why that is no good one."""
    if one.last is None:
        return MISSING
    attempt, part = one.last
    ended = {"infrastructure": " failed", "interrupted": " interrupted"}
    return seconds(part.seconds) + ended.get(attempt.outcome, "")


def groups(found: Sequence[NodeGroup], unit: Unit) -> list[Part]:
    """Return a table of node groups with good runs; `vs all`: their mean over that of all good
    runs."""
    if not found:
        return []
    everything = [value for one in found for value in one.minutes]
    usual = sum(everything) / len(everything)
    rows = [
        (
            fold(one.nodes),
            ", ".join(map(str, one.runs)),
            *map(unit.full, (one.mean, min(one.minutes), max(one.minutes))),
            f"{one.mean / usual:.3f}" if usual else MISSING,
        )
        for one in found
    ]
    header = ("nodes", "runs", "mean", "fastest", "slowest", "vs all")
    return [Table("Time to train per group of nodes", header, rows, numeric=(2, 3, 4, 5))]


def incomparable(history: Sequence[NodeHistory], record: SetRecord | None) -> list[str]:
    """Return, if all good runs had the same nodes, why no slow node shows, and a command that
    helps."""
    ran = [one for one in history if one.minutes_with is not None]
    measured = any(one.gbps is not None for one in history)
    if len(ran) < 2 or measured or any(one.minutes_without is not None for one in ran):
        return []
    text = (
        "All good runs had the same nodes, which wait for each other: times cannot show which node "
        "is slow."
    )
    if record is None or record.engine == "none":
        return [text]
    names = f"{quoted(record.system)} {quoted(record.workload)} --round {quoted(record.round)}"
    command = f"  orchestrator doctor {names} --all-nodes --deep"
    return [f"{text} The bandwidth test can, if the image has torch:", command]


def unblamed(history: Sequence[NodeHistory], explain: str) -> list[str]:
    """Return why no node is named after failed attempts, and the command `explain`; [] if one is
    named, or nothing failed.

    The loop blames a node to replace it by a spare: without spares it records no blame.
    """
    named = any(one.spare or one.set_aside or one.blamed or one.lost for one in history)
    if named or len(history) < 2 or not any(one.failed for one in history):
        return []
    text = "No node is blamed for the failed attempts: the set has no spare node to replace one."
    return [f"{text} Their cause:", f"  {explain}"]


def complaints(history: Iterable[NodeHistory]) -> list[str]:
    return _folded(
        (f"{verdict}: {reason}" + (f"; {remedy}" if remedy else ""), one.node)
        for one in history
        for verdict, reason, remedy in (one.preflight.reasons if one.preflight else ())
    )


def losses(history: Iterable[NodeHistory]) -> list[str]:
    """Return why nodes were excluded or lost, each reason with its nodes."""
    found = []
    for one in history:
        found += [
            (f"excluded ({aside.when}): {aside.reason or 'no reason recorded'}", one.node)
            for aside in one.set_aside
        ]
        if one.lost and not one.set_aside:
            found.append((f"lost by Slurm: {one.lost[-1].reason or 'no state recorded'}", one.node))
    return _folded(found)


def _folded(pairs: Iterable[tuple[str, str]]) -> list[str]:
    nodes: dict[str, list[str]] = {}
    for text, node in pairs:
        nodes.setdefault(text, []).append(node)
    return [f"{text} ({fold(names)})" for text, names in nodes.items()]


def startup(found: Sequence[StartUp], published: Iterable[PublishedStartup]) -> list[Part]:
    """Return a row per attempt that reached run_start, and the published entry's times."""
    if not found:
        return []
    rows = [
        (
            f"{one.run}.{one.attempt}",
            one.node,
            seconds(one.startup_s),
            seconds(one.run_s),
            seconds(one.shutdown_s),
            MISSING if one.cold is None else "new" if one.cold else "used",
            one.cache or MISSING,
        )
        for one in found
    ]
    header = ("attempt", "node", "start-up", "run", "shut-down", "container", "caches")
    listing = Table("Time around each run", header, rows, numeric=(2, 3, 4), leave=("caches",))
    texts = [one.words for one in published]
    if not texts:
        return [listing]
    return [listing, Paragraph("Published entry, from its logs:"), Bullets(texts)]
