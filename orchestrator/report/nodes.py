"""Sections about nodes and attempts: runs, speed, exclusions with reasons, bandwidths."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.evidence.attempts import NodePart, RunAttempt, slow_nodes
from orchestrator.evidence.events import SetAside
from orchestrator.mllog.olympic import LOST
from orchestrator.nodes.names import fold
from orchestrator.report.model import Report
from orchestrator.views import nodes as views
from orchestrator.views.figures import MISSING, moment, seconds
from orchestrator.views.parts import Bullets, Cell, Details, Paragraph, Part, Table
from orchestrator.words import count

MOST_NODES = 128
MOST_COLUMNS = 40
MOST_ROWS = 300
"""Listed attempts."""
MOST_MEASUREMENTS = 200


def nodes(report: Report) -> list[Part]:
    return [
        *_grid(report),
        *_unfit("Excluded nodes", [(node.node, node.set_aside) for node in report.nodes]),
        *_unfit("Blamed nodes", [(node.node, node.blamed) for node in report.nodes]),
        *_summary(report),
        *views.groups(report.groups[:MOST_NODES], report.unit),
        *_bandwidth(report),
    ]


def _grid(report: Report) -> list[Part]:
    attempts = [attempt for attempt in report.attempts if attempt.nodes]
    if not attempts:
        return []
    slow, shown = slow_nodes(report.attempts), attempts[-MOST_COLUMNS:]
    if slow:
        node, often, late_s = slow[0]
        verdict = (
            f"Late most often: {node}, in {often} of {count(len(attempts), 'attempt')}, by "
            f"{seconds(late_s)} on average."
        )
    else:
        verdict = (
            "No node started or ended later than the others by more than 1 s and 2 % of the run."
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
        (name, late.get(name, 0), *(_node_cell(by_node.get(name)) for by_node in cells))
        for name in names
    ]
    header = ("node", "late", *(_attempt_name(attempt, report.attempts) for attempt in shown))
    caption = "Time of every node in every run; ▲ late, ✗ exit code other than 0"
    return [Paragraph(verdict), Table(caption, header, rows, numeric=(1,), dense=True)]


def _attempt_name(attempt: RunAttempt, everything: Sequence[RunAttempt]) -> str:
    several = sum(other.run == attempt.run for other in everything) > 1
    return f"run {attempt.run}.{attempt.attempt}" if several else f"run {attempt.run}"


def _node_cell(cell: NodePart | None) -> str | Cell:
    if cell is None:
        return MISSING
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


def _unfit(title: str, noted: list[tuple[str, tuple[SetAside, ...]]]) -> list[Part]:
    in_order = sorted(
        ((aside.time_ms, node, aside) for node, notes in noted for aside in notes),
        key=lambda item: item[:2],
    )
    together: dict[tuple[str, str, str], list[str]] = {}
    for time_ms, node, aside in in_order:
        same = aside.when, moment(time_ms), aside.reason or MISSING
        together.setdefault(same, []).append(node)
    rows = [(fold(names), *same) for same, names in together.items()]
    return [Table(title, ("nodes", "when", "at", "why"), rows)] if rows else []


def _summary(report: Report) -> list[Part]:
    if not report.nodes:
        return []
    remarks = [*report.slow_signs, *views.complaints(report.nodes)]
    bullets = [Bullets(remarks)] if remarks else []
    table = views.summary(report.nodes[:MOST_NODES], report.unit)
    return [*bullets, table, Paragraph(table.explained(table.header), "note-text")]


def _bandwidth(report: Report) -> list[Part]:
    rows = [
        (
            measurement.round,
            len(measurement.nodes),
            fold(measurement.nodes),
            measurement.way,
            f"{measurement.gbps:.1f}" if measurement.gbps else MISSING,
            measurement.note or MISSING,
        )
        for measurement in report.bandwidth[:MOST_MEASUREMENTS]
    ]
    if not rows:
        return []
    header = ("round", "nodes", "which", "way", "GB/s", "note")
    listing = Table(
        "Bus bandwidth of an all-reduce over groups of nodes", header, rows, numeric=(1, 4)
    )
    return [Details("Bandwidth between the nodes, as measured", listing)]


def startup(report: Report) -> list[Part]:
    text = (
        "Start-up is from the start of the script to run_start, shut-down from run_stop to its "
        "end. The first run in a new container compiles what the others find."
    )
    parts = views.startup(report.startups[:MOST_ROWS], report.published_startup)
    return [Paragraph(text), *parts] if parts else []


def attempts(report: Report) -> list[Part]:
    if not report.attempts:
        return []
    lost = [attempt for attempt in report.attempts if attempt.outcome in LOST]
    rows = [
        (
            f"{attempt.run}.{attempt.attempt}",
            attempt.outcome or attempt.state,
            "yes" if attempt.counts else "no",
            seconds((attempt.end_ms - attempt.start_ms) / 1000)
            if attempt.end_ms and attempt.start_ms
            else MISSING,
            attempt.seed,
            attempt.job_id,
            moment(attempt.start_ms),
        )
        for attempt in report.attempts[:MOST_ROWS]
    ]
    reasons = [attempt.reason for attempt in report.attempts[:MOST_ROWS]]
    text = (
        f"{count(len(report.attempts), 'attempt')}, {len(lost)} of them lost to the infrastructure "
        "(recorded, "
        "not scored)."
    )
    header = ("run.attempt", "outcome", "counts", "time", "seed", "job", "started")
    return [
        Paragraph(text),
        Table("Every attempt at every run", header, rows, numeric=(3,), below=reasons),
    ]
