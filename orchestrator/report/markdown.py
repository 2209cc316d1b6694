"""A report as Markdown, for an issue, a pull request or a chat."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.evidence.attempts import slow_nodes
from orchestrator.report.figures import moment, plain, seconds
from orchestrator.report.markup import clean
from orchestrator.report.model import Report
from orchestrator.report.nodes import GROUPS, STARTUP, aside_rows, group_rows, startup_rows

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@])")


def text(value: object, longest: int = 160) -> str:
    """Return a value on one line, escaped for Markdown and HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(value, longest).split()))


def code(value: object) -> str:
    """Return a value as a code span, with backticks escaped."""
    return f"`{' '.join(clean(value).split()).replace('`', chr(0x2019))}`"


def markdown(report: Report) -> str:
    """Return the whole report, short: verdict, runs, arithmetic, causes, nodes, lost attempts,
    failed host settings."""
    parts = [
        f"# {text(report.title)}",
        _head(report),
        _runs(report),
        _steps(report),
        _list("Where the time goes", [item["text"] for item in report.score.why]),
        _list("Forecast", (report.score.forecast or {}).get("text", [])),
        _startup(report),
        _nodes(report),
        _aside(report),
        _groups(report),
        _list("What points at a slow node", report.slow_signs),
        _lost(report),
        _tunables(report),
        _findings(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(report: Report) -> str:
    score = report.score
    lines = [
        f"**{text(score.verdict, 1000)}**",
        "",
        (
            f"- {text(score.rules_text)}{f', {score.division} division' if score.division else ''}, "
            f"batch size {text('–' if score.batch_size == -1 else score.batch_size)}, "
            f"{len(score.runs)} of {score.runs_required} runs"
        ),
    ]
    lines += [f"- ledger: {text(value, 1000)}" for name, value in report.facts if name == "ledger"]
    if score.rcp:
        lines.append(
            f"- RCP test: {'passed' if score.rcp.passed else 'failed'}: {text(score.rcp.message)}"
        )
    lines += [f"- {text(line, 400)}" for line in report.against_published]
    lines += [f"- {text(note, 400)}" for note in score.notes]
    if set_id := report.described.get("set_id"):
        lines.append(f"- set {text(set_id)}, image {text(report.described.get('image', '–'))}")
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(text(cell) for cell in row)} |" for row in rows)])


def _runs(report: Report) -> str:
    rows = [
        (
            run.label,
            report.unit.text(run.minutes),
            plain(run.samples),
            run.seed or "–",
            run.status or "no run_stop",
            run.use_text,
            moment(run.start_ms),
        )
        for run in report.runs
    ]
    return (
        table(("run", report.unit.name, "samples", "seed", "status", "use", "started"), rows)
        if rows
        else "No run has ended yet."
    )


def _steps(report: Report) -> str:
    lines = []
    for index, step in enumerate(report.steps, 1):
        lines.append(f"{index}. {text(step.title, 200)}")
        lines += [f"   - {text(line, 4000)}" for line in step.lines]
    return "## The score, step by step\n\n" + "\n".join(lines) if lines else ""


def _list(title: str, items: Sequence[object]) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {text(item, 400)}" for item in items) if items else ""


def _startup(report: Report) -> str:
    rows = startup_rows(report)
    published = "".join(
        f"\n\nPublished: {text(one.words, 400)}" for one in report.published_startup
    )
    return f"## Start-up and shut-down\n\n{table(STARTUP, rows)}{published}" if rows else ""


def _nodes(report: Report) -> str:
    rows = [(node, count, seconds(late)) for node, count, late in slow_nodes(report.attempts)[:20]]
    return (
        "## Late nodes\n\n" + table(("node", "attempts late", "late by, mean"), rows)
        if rows
        else ""
    )


def _aside(report: Report) -> str:
    rows = aside_rows(report)
    return "## Nodes set aside\n\n" + table(("node", "when", "at", "why"), rows) if rows else ""


def _groups(report: Report) -> str:
    rows = group_rows(report)
    heading = f"{report.unit.name.capitalize()} to train per group of nodes"
    return f"## {heading}\n\n{table(GROUPS, rows)}" if rows else ""


def _lost(report: Report) -> str:
    rows = [
        (f"{one.run}.{one.attempt}", one.outcome, moment(one.start_ms), one.reason)
        for one in report.attempts
        if one.outcome in ("infrastructure", "interrupted")
    ]
    return (
        "## Lost attempts\n\n" + table(("run.attempt", "outcome", "started", "reason"), rows[:100])
        if rows
        else ""
    )


def _tunables(report: Report) -> str:
    rows = [
        (one.knob, one.wanted, one.before, one.after, ", ".join(one.nodes))
        for one in report.tunables
        if one.state == "failed"
    ]
    return (
        "## Tunables that did not hold\n\n"
        + table(("setting", "wanted", "before", "after", "nodes"), rows)
        if rows
        else ""
    )


def _findings(report: Report) -> str:
    found = report.score.findings
    return _list("Findings", found[:50]) if found else ""
