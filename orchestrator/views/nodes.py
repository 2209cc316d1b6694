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
    return unit_of_runs(
        minutes for node in history for minutes in (node.minutes_with, node.minutes_without)
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
        [_summary_row(node, unit) for node in history],
        numeric=(1, 2, 3, 4, 5, 6, 7, 8, 10),
        states=(11,),
        leave=("last", "exit codes", "without", "with", "mean"),
        legend=LEGEND,
    )


def _summary_row(node: NodeHistory, unit: Unit) -> tuple[str, ...]:
    waiting = "waits" if node.waits else "spare" if node.spare else MISSING
    return (
        node.node,
        ",".join(map(str, node.ranks)) or waiting,
        str(node.good),
        str(node.failed),
        seconds(node.mean_s),
        _last(node),
        MISSING if node.relative is None else f"{node.relative:.3f}",
        unit.full(node.minutes_with),
        unit.full(node.minutes_without),
        ",".join(map(str, node.exits)) or MISSING,
        MISSING if node.gbps is None else f"{node.gbps:.1f}",
        node.preflight.verdict if node.preflight else MISSING,
    )


def _last(node: NodeHistory) -> str:
    """Return the wall time of the last attempt, and how a bad attempt ended."""
    if node.last is None:
        return MISSING
    attempt, part = node.last
    ended = {"infrastructure": " failed", "interrupted": " interrupted"}
    return seconds(part.seconds) + ended.get(attempt.outcome, "")


def groups(node_groups: Sequence[NodeGroup], unit: Unit) -> list[Part]:
    """Return a table of node groups. `vs all`: their mean over that of all good runs."""
    if not node_groups:
        return []
    everything = [value for group in node_groups for value in group.minutes]
    usual = sum(everything) / len(everything)
    rows = [
        (
            fold(group.nodes),
            ", ".join(map(str, group.runs)),
            *map(unit.full, (group.mean, min(group.minutes), max(group.minutes))),
            f"{group.mean / usual:.3f}" if usual else MISSING,
        )
        for group in node_groups
    ]
    header = ("nodes", "runs", "mean", "fastest", "slowest", "vs all")
    return [Table("Time to train per group of nodes", header, rows, numeric=(2, 3, 4, 5))]


def incomparable(history: Sequence[NodeHistory], record: SetRecord | None) -> list[str]:
    """Return why equal nodes in all good runs hide a slow node, and a command that helps."""
    ran = [node for node in history if node.minutes_with is not None]
    measured = any(node.gbps is not None for node in history)
    if len(ran) < 2 or measured or any(node.minutes_without is not None for node in ran):
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
    """Return why no node is named after failed attempts, and the command `explain`.

    The loop blames a node to replace it by a spare: without spares it records no blame.
    """
    named = any(node.spare or node.set_aside or node.blamed or node.lost for node in history)
    if named or len(history) < 2 or not any(node.failed for node in history):
        return []
    text = "No node is blamed for the failed attempts: the set has no spare node to replace one."
    return [f"{text} Their cause:", f"  {explain}"]


def complaints(history: Iterable[NodeHistory]) -> list[str]:
    return _folded(
        (f"{verdict}: {reason}" + (f"; {remedy}" if remedy else ""), node.node)
        for node in history
        for verdict, reason, remedy in (node.preflight.reasons if node.preflight else ())
    )


def losses(history: Iterable[NodeHistory]) -> list[str]:
    """Return why nodes were excluded, blamed or lost, each reason with its nodes."""
    pairs = []
    for node in history:
        for word, notes in (("excluded", node.set_aside), ("blamed", node.blamed)):
            pairs += [
                (f"{word} ({aside.when}): {aside.reason or 'no reason recorded'}", node.node)
                for aside in notes
            ]
        if node.lost and not node.set_aside:
            pairs.append(
                (f"lost by Slurm: {node.lost[-1].reason or 'no state recorded'}", node.node)
            )
    return _folded(pairs)


def _folded(pairs: Iterable[tuple[str, str]]) -> list[str]:
    nodes: dict[str, list[str]] = {}
    for text, node in pairs:
        nodes.setdefault(text, []).append(node)
    return [f"{text} ({fold(names)})" for text, names in nodes.items()]


def startup(starts: Sequence[StartUp], published: Iterable[PublishedStartup]) -> list[Part]:
    """Return a row per attempt that reached run_start, and the published entry's times."""
    if not starts:
        return []
    rows = [
        (
            f"{start.run}.{start.attempt}",
            start.node,
            seconds(start.startup_s),
            seconds(start.run_s),
            seconds(start.shutdown_s),
            MISSING if start.cold is None else "new" if start.cold else "used",
            start.cache or MISSING,
        )
        for start in starts
    ]
    header = ("attempt", "node", "start-up", "run", "shut-down", "container", "caches")
    listing = Table("Time around each run", header, rows, numeric=(2, 3, 4), leave=("caches",))
    texts = [entry.words for entry in published]
    if not texts:
        return [listing]
    return [listing, Paragraph("Published entry, from its logs:"), Bullets(texts)]
