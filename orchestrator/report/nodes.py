"""Sections about nodes and attempts: runs and speed, exclusions and their reasons, bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.evidence.attempts import NodePart, RunAttempt, slow_nodes
from orchestrator.report.figures import Unit, moment, seconds
from orchestrator.report.model import Report
from orchestrator.report.parts import Bullets, Cell, Details, Paragraph, Part, Table

if TYPE_CHECKING:
    from orchestrator.evidence.nodes import NodeHistory

MOST_NODES = 128
MOST_COLUMNS = 40
MOST_ATTEMPTS = 300
MOST_MEASUREMENTS = 200
GROUPS = ("nodes", "runs", "mean", "fastest", "slowest")
STARTUP = ("run.attempt", "container", "caches", "start-up", "run", "shut-down")
SUMMARY = (
    "node",
    "ranks",
    "good",
    "failed",
    "time, mean",
    "against the others",
    "runs with it",
    "without it",
    "exit codes",
    "GB/s",
)


def nodes(report: Report) -> list[Part]:
    return [
        *_grid(report),
        *_set_aside(report),
        *_summary(report),
        *_groups(report),
        *_bandwidth(report),
    ]


def _grid(report: Report) -> list[Part]:
    attempts = [attempt for attempt in report.attempts if attempt.nodes]
    if not attempts:
        return []
    slow, shown = slow_nodes(report.attempts), attempts[-MOST_COLUMNS:]
    if slow:
        node, count, late_s = slow[0]
        verdict = (
            f"Late most often: {node}, in {count} of {len(attempts)} attempts, by "
            f"{seconds(late_s)} on average."
        )
    else:
        verdict = (
            "No node began or ended later than the others by more than 1 s and 2 % of the run."
        )
    names = list(dict.fromkeys(cell.node for attempt in shown for cell in attempt.nodes))
    late = {node: count for node, count, _ in slow}
    names = (
        sorted(names, key=lambda name: -late.get(name, 0))[:MOST_NODES]
        if len(names) > MOST_NODES
        else names
    )
    cells = [{cell.node: cell for cell in attempt.nodes} for attempt in shown]
    rows = [
        (name, late.get(name, 0), *(_node_cell(one.get(name)) for one in cells)) for name in names
    ]
    header = ("node", "late", *(_attempt_name(attempt, report.attempts) for attempt in shown))
    caption = "Time of every node in every run; ▲ late, ✗ exit code other than 0"
    return [Paragraph(verdict), Table(caption, header, rows, numeric=(1,), dense=True)]


def _attempt_name(attempt: RunAttempt, everything: Sequence[RunAttempt]) -> str:
    several = sum(one.run == attempt.run for one in everything) > 1
    return f"run {attempt.run}.{attempt.attempt}" if several else f"run {attempt.run}"


def _node_cell(cell: NodePart | None) -> str | Cell:
    if cell is None:
        return "–"
    code = (
        "no exit code"
        if cell.exit is None or cell.exit == -1
        else f"✗ {cell.exit}"
        if cell.exit
        else ""
    )
    time = "" if cell.seconds is None else seconds(cell.seconds)
    late = f"▲ +{seconds(max(cell.late_start_s, cell.late_end_s))}" if cell.slow else ""
    text = " · ".join(filter(None, (code, time, late))) or "0"
    style = "late" if cell.slow else "wrong" if cell.exit not in (0, None) else ""
    return Cell(text, style=style) if style else text


def aside_rows(report: Report) -> list[tuple[str, str, str, str]]:
    """Return (node, when, attempt, why) of every excluded node, in order."""
    found = sorted(
        ((aside.time_ms, one.node, aside) for one in report.nodes for aside in one.set_aside),
        key=lambda item: item[:2],
    )
    return [
        (node, aside.when, moment(time_ms), aside.reason or "–") for time_ms, node, aside in found
    ]


def summary_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the cells under SUMMARY, one row per node."""
    return [_summary_row(one, report.unit) for one in report.nodes[:MOST_NODES]]


def _summary_row(one: NodeHistory, unit: Unit) -> tuple[str, ...]:
    ranks = ", ".join(map(str, one.ranks)) or (
        "waits" if one.waits else "spare" if one.spare else "–"
    )
    relative = "–" if one.relative is None else f"{one.relative:.3f}"
    rate = "–" if one.gbps is None else f"{one.gbps:.1f}"
    return (
        one.node,
        ranks,
        str(one.good),
        str(one.failed),
        seconds(one.mean_s),
        relative,
        unit.full(one.minutes_with),
        unit.full(one.minutes_without),
        ", ".join(map(str, one.exits)) or "–",
        rate,
    )


def _set_aside(report: Report) -> list[Part]:
    rows = aside_rows(report)
    return [Table("Nodes that were set aside", ("node", "when", "at", "why"), rows)] if rows else []


def _summary(report: Report) -> list[Part]:
    if not report.nodes:
        return []
    signs = [Bullets(report.slow_signs)] if report.slow_signs else []
    below = [_preflight(one) for one in report.nodes[:MOST_NODES]]
    return [
        *signs,
        Table(
            "What each node did", SUMMARY, summary_rows(report), numeric=range(2, 10), below=below
        ),
    ]


def _preflight(one: NodeHistory) -> str:
    """Return the result of the preflight, unless all is well."""
    if one.preflight is None or one.preflight.verdict == "pass":
        return ""
    telling = one.preflight.telling
    return f"preflight: {one.preflight.verdict}" + (f": {telling[0].reason}" if telling else "")


def group_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the cells under GROUPS, one row per group of nodes."""
    found = []
    for one in report.groups[:MOST_NODES]:
        names = ", ".join(one.nodes[:8]) + (", …" if len(one.nodes) > 8 else "")
        times = map(report.unit.text, (one.mean, min(one.minutes), max(one.minutes)))
        found.append((names, ", ".join(map(str, one.runs)), *times))
    return found


def _groups(report: Report) -> list[Part]:
    rows = group_rows(report)
    caption = f"{report.unit.name.capitalize()} to train per group of nodes"
    return [Table(caption, GROUPS, rows, numeric=(2, 3, 4))] if rows else []


def _bandwidth(report: Report) -> list[Part]:
    rows = [
        (
            one.round,
            len(one.nodes),
            ", ".join(one.nodes[:8]) + (", …" if len(one.nodes) > 8 else ""),
            one.way,
            f"{one.gbps:.1f}" if one.gbps else "–",
            one.note or "–",
        )
        for one in report.bandwidth[:MOST_MEASUREMENTS]
    ]
    if not rows:
        return []
    header = ("round", "nodes", "which", "way", "GB/s", "note")
    listing = Table(
        "Bus bandwidth of an all-reduce over groups of nodes", header, rows, numeric=(1, 4)
    )
    return [Details("Bandwidth between the nodes, as measured", listing)]


def startup_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the cells under STARTUP, one row per attempt that reached run_start."""
    return [
        (
            f"{one.run}.{one.attempt}",
            "–" if one.cold is None else "new" if one.cold else "used",
            one.cache or "–",
            seconds(one.startup_s),
            seconds(one.run_s),
            seconds(one.shutdown_s),
        )
        for one in report.startups[:MOST_ATTEMPTS]
    ]


def startup(report: Report) -> list[Part]:
    if not report.startups:
        return []
    text = (
        "Start-up is from the start of the script to run_start, shut-down from run_stop to its "
        "end. "
        "The first run in a new container compiles what the others find."
    )
    published = [one.words for one in report.published_startup]
    beside: list[Part] = (
        [Paragraph("What the logs of the published entry show:"), Bullets(published)]
        if published
        else []
    )
    listing = Table("Time around each run", STARTUP, startup_rows(report), numeric=(3, 4, 5))
    return [Paragraph(text), listing, *beside]


def attempts(report: Report) -> list[Part]:
    if not report.attempts:
        return []
    lost = [one for one in report.attempts if one.outcome in ("infrastructure", "interrupted")]
    rows = [
        (
            f"{one.run}.{one.attempt}",
            one.outcome or one.state,
            "yes" if one.counts else "no",
            seconds((one.end_ms - one.start_ms) / 1000) if one.end_ms and one.start_ms else "–",
            one.seed,
            one.job_id,
            moment(one.start_ms),
        )
        for one in report.attempts[:MOST_ATTEMPTS]
    ]
    reasons = [one.reason for one in report.attempts[:MOST_ATTEMPTS]]
    text = (
        f"{len(report.attempts)} attempts, {len(lost)} of them lost to the infrastructure (on "
        "record, not scored)."
    )
    header = ("run.attempt", "outcome", "counts", "time", "seed", "job", "started")
    return [
        Paragraph(text),
        Table("Every attempt at every run", header, rows, numeric=(3,), below=reasons),
    ]
