"""The sections of the page, each a function from a Report to HTML; an empty one is left out."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report import charts
from orchestrator.report.figures import minutes, moment, plain
from orchestrator.report.markup import Safe, join, tag
from orchestrator.report.model import Report
from orchestrator.report.nodes import attempts, nodes
from orchestrator.report.reading import thinned
from orchestrator.report.tables import table

MOST_FINDINGS = 200
MOST_COLUMNS = 40
MOST_VARIABLES = 1000


def _figure(chart: Safe, caption: str, beside: Safe) -> Safe:
    """A chart with its caption, and its numbers as a table that can be opened."""
    if not chart:
        return Safe("")
    return join(
        tag("figure", chart, tag("figcaption", caption)),
        tag("details", tag("summary", "The numbers of this chart"), beside),
    )


# ---- the score ----


def times(report: Report) -> Safe:
    if not report.runs:
        return tag("p", "No run has ended yet.")
    header = ("run", "minutes", "samples", "seed", "status", "use", "started", "file")
    rows = [
        (
            run.label,
            minutes(run.minutes),
            plain(run.samples),
            run.seed or "–",
            run.status or "no run_stop",
            run.use_text + ("" if run.compliant else ", not compliant"),
            moment(run.start_ms),
            run.file,
        )
        for run in report.runs
    ]
    listing = table("Time to train of each run", header, rows, numeric=(1, 2))
    chart = charts.times(report)
    drawn = (
        tag("figure", chart, tag("figcaption", "Hatched runs are not part of the olympic mean.")) if chart else Safe("")
    )
    return join(drawn, listing)


def arithmetic(report: Report) -> Safe:
    if not report.steps:
        return Safe("")
    items = []
    for step in report.steps:
        lines = [
            tag("span", tag("span", line[:6000], class_="mono") if len(line) <= 400 else _long(line))
            for line in step.lines
        ]
        items.append(tag("li", tag("b", step.title), *lines))
    return join(
        tag("p", "Every number of the score, from the logs to the result, for following it by hand."),
        tag("ol", *items, class_="steps"),
    )


def _long(line: str) -> Safe:
    """A line that is longer than a value may be: cut into pieces that are cleaned one by one."""
    pieces = [line[index : index + 400] for index in range(0, min(len(line), 12000), 400)]
    return tag("span", join(*pieces), class_="mono")


def outlook(report: Report) -> Safe:
    score = report.score
    parts = []
    if score.forecast:
        parts += [tag("h3", "Forecast"), tag("ul", *(tag("li", text) for text in score.forecast.get("text", [])))]
    if score.why:
        parts += [tag("h3", "Where the time goes"), tag("ul", *(tag("li", item["text"]) for item in score.why))]
    if score.window:
        windows = score.window["windows"]
        rows = [
            (f"{one['first']} to {one['last']}", minutes(one["score_minutes"])) for one in windows[: MOST_COLUMNS * 2]
        ]
        parts += [
            tag("h3", "Windows of consecutive runs"),
            tag("p", f"Rule: {score.window['rule']}."),
            table("All windows in launch order", ("window", "score, minutes"), rows, numeric=(1,)),
        ]
    return join(*parts)


# ---- charts ----


def convergence(report: Report) -> Safe:
    runs = [run for run in report.runs if run.evaluations][: charts.MOST_CURVES]
    counts = thinned(sorted({point.samples for run in runs for point in run.evaluations}), charts.MOST_ROWS)
    rows = [
        (plain(count), *(_at({point.samples: point.value for point in run.evaluations}, count) for run in runs))
        for count in counts
    ]
    beside = table(
        f"{report.metric} by samples and run",
        ("samples", *(f"run {run.label}" for run in runs)),
        rows,
        numeric=range(len(runs) + 1),
    )
    return _figure(charts.convergence(report), "Each curve ends where its run ended.", beside)


def _at(values: dict[float, float], key: float) -> str:
    return f"{values[key]:.5g}" if key in values else ""


def samples(report: Report) -> Safe:
    rows = [
        (run.label, plain(run.samples), "yes" if run.converged else "no") for run in report.runs if run.use != "outside"
    ]
    beside = table("Samples to converge", ("run", "samples", "converged"), rows, numeric=(1,))
    caption = "Fewer samples than the smallest acceptable mean fail the test; more never do."
    return _figure(charts.samples(report), caption, beside)


def throughput(report: Report) -> Safe:
    rows = []
    for run in report.runs:
        rates = sorted(rate for _, rate in run.throughput)
        if rates:
            rows.append((run.label, plain(rates[0]), plain(rates[len(rates) // 2]), plain(rates[-1]), len(rates)))
    beside = table(
        "Samples per second of each run", ("run", "smallest", "median", "largest", "points"), rows, numeric=(1, 2, 3, 4)
    )
    return _figure(charts.throughput(report), f"Samples per second, {charts.throughput_note(report)}.", beside)


def timeline(report: Report) -> Safe:
    rows = [
        (
            f"{gap.after} → {gap.before}",
            minutes(gap.minutes) if gap.minutes >= 0 else f"{minutes(gap.minutes)} (they overlap)",
        )
        for gap in report.gaps
    ]
    gaps = (
        table("Minutes from the end of a run to the start of the next", ("runs", "minutes"), rows, numeric=(1,))
        if rows
        else Safe("")
    )
    chart = charts.timeline(report)
    return (
        join(
            tag(
                "figure",
                chart,
                tag(
                    "figcaption",
                    "Hatched: initialisation, which is not part of the score. Crossed: lost attempts, as run.attempt.",
                ),
            ),
            gaps,
        )
        if chart
        else Safe("")
    )


# ---- the machine ----


def tunables(report: Report) -> Safe:
    if not report.tunables:
        return Safe("")
    rows = [
        (
            tag("code", one.knob),
            one.wanted,
            one.before,
            one.after,
            {"ok": "✓ ok", "failed": "✗ failed"}.get(one.state, one.state),
            _nodes_text(one.nodes),
        )
        for one in report.tunables
    ]
    return table(
        "Host settings: wanted, before the job, during it",
        ("setting", "wanted", "before", "after", "state", "nodes"),
        rows,
    )


def _nodes_text(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}"


def environment(report: Report) -> Safe:
    if not report.environment and not report.is_set:
        return Safe("")
    note = tag("p", report.environment_note, class_="note-text") if report.environment_note else Safe("")
    rows = [
        (tag("code", one.name), tag("code", one.value), one.place, one.origin)
        for one in report.environment[:MOST_VARIABLES]
    ]
    header = ("variable", "value", "set in the bundle", "origin")
    return join(
        note, table("Environment of the runs, as evaluated on the batch host", header, rows) if rows else Safe("")
    )


def facts(report: Report) -> Safe:
    parts = [
        table("The set", ("fact", "value"), [(name, tag("span", text, class_="mono")) for name, text in report.facts])
    ]
    if report.images:
        parts.append(
            table(
                "Images",
                ("image or digest", "used by"),
                [(tag("code", image), where) for image, where in report.images],
            )
        )
    if report.problems:
        parts += [
            tag("h3", "Files that could not be used"),
            tag("ul", *(tag("li", problem) for problem in report.problems[:MOST_FINDINGS])),
        ]
    return join(*parts)


def findings(report: Report) -> Safe:
    found = report.score.findings
    if not found:
        return Safe("")
    rows = [
        (
            finding.severity,
            f"{finding.file}:{finding.line}" if finding.line else finding.file,
            tag("code", finding.key),
            finding.message,
        )
        for finding in found[:MOST_FINDINGS]
    ]
    more = (
        tag("p", f"{len(found) - MOST_FINDINGS} more: orchestrator check") if len(found) > MOST_FINDINGS else Safe("")
    )
    return join(
        table("What the referee's rules say about the logs", ("severity", "place", "key", "finding"), rows), more
    )


SECTIONS = (
    ("times", "Time to train", times),
    ("arithmetic", "The score, step by step", arithmetic),
    ("outlook", "Outlook and causes", outlook),
    ("convergence", "Convergence", convergence),
    ("samples", "Samples to converge and the reference", samples),
    ("throughput", "Throughput", throughput),
    ("timeline", "Timeline and gaps", timeline),
    ("nodes", "Nodes", nodes),
    ("attempts", "Attempts", attempts),
    ("findings", "Findings", findings),
    ("tunables", "Tunables", tunables),
    ("environment", "Environment", environment),
    ("facts", "The set and its images", facts),
)
