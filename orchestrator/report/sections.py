"""The page's sections, each a function from a Report to its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.nodes.names import fold
from orchestrator.report import curves, rows
from orchestrator.report.model import Report
from orchestrator.report.nodes import attempts, nodes, startup
from orchestrator.report.reading import thinned
from orchestrator.views.figures import plain
from orchestrator.views.markup import Safe
from orchestrator.views.parts import (
    Bullets,
    Cell,
    Details,
    Figure,
    Heading,
    Paragraph,
    Part,
    Section,
    Steps,
    Table,
)
from orchestrator.views.score import scored_runs
from orchestrator.words import count, duration

if TYPE_CHECKING:
    from orchestrator.mllog.compliance import LogFinding

MOST_FINDINGS = 200
MOST_COLUMNS = 40
MOST_VARIABLES = 1000


def sections(report: Report) -> list[Section]:
    """Return the non-empty sections in order."""
    return [
        Section(name, title, parts, name in APPENDIX)
        for name, title, make in SECTIONS
        if (parts := make(report))
    ]


def _figure(chart: Safe, caption: str, beside: Table) -> list[Part]:
    return (
        [Figure(chart, caption), Details("The numbers of this chart", beside, paper=False)]
        if chart
        else []
    )


# ---- the score ----


def times(report: Report) -> list[Part]:
    if not report.runs:
        return [Paragraph("No run has ended yet.")]
    chart = rows.times(report)
    caption = "The axis does not start at 0. Hollow marks are not part of the mean."
    drawn: list[Part] = [Figure(chart, caption)] if chart else []
    return [*drawn, scored_runs(report.score.runs)]


def arithmetic(report: Report) -> list[Part]:
    if not report.steps:
        return []
    text = "Every number of the score, from the logs to the result, for following it by hand."
    return [Paragraph(text), Details("Show the arithmetic", Steps(report.steps))]


def outlook(report: Report) -> list[Part]:
    score = report.score
    parts: list[Part] = []
    if score.forecast:
        parts += [Heading("Forecast"), Bullets(score.forecast.get("text", []))]
    if score.why:
        parts += [Heading("Where the time goes"), Bullets([item["text"] for item in score.why])]
    if score.window:
        windows = score.window["windows"]
        listed = [
            (f"{window['first']} to {window['last']}", report.unit.text(window["score_minutes"]))
            for window in windows[: MOST_COLUMNS * 2]
        ]
        parts += [
            Heading("Windows of consecutive runs"),
            Paragraph(f"Rule: {score.window['rule']}."),
            Table(
                "All windows in launch order",
                ("window", f"score, {report.unit.name}"),
                listed,
                numeric=(1,),
            ),
        ]
    return parts


# ---- charts ----


def convergence(report: Report) -> list[Part]:
    runs = [run for run in report.runs if run.evaluations][: curves.MOST_CURVES]
    counts = thinned(
        sorted({point.samples for run in runs for point in run.evaluations}), curves.MOST_ROWS
    )
    listed = [
        (
            plain(count),
            *(
                _at({point.samples: point.value for point in run.evaluations}, count)
                for run in runs
            ),
        )
        for count in counts
    ]
    beside = Table(
        f"{report.metric} by samples and run",
        ("samples", *(f"run {run.label}" for run in runs)),
        listed,
        numeric=range(len(runs) + 1),
    )
    return _figure(curves.convergence(report), "Each curve ends where its run ended.", beside)


def _at(values: dict[float, float], key: float) -> str:
    return f"{values[key]:.5g}" if key in values else ""


def samples(report: Report) -> list[Part]:
    listed = [
        (run.label, plain(run.samples), "yes" if run.converged else "no")
        for run in report.runs
        if run.use != "outside"
    ]
    beside = Table("Samples to converge", ("run", "samples", "converged"), listed, numeric=(1,))
    caption = "Fewer samples than the smallest acceptable mean fail the test; more never do."
    return _figure(rows.samples(report), caption, beside)


def throughput(report: Report) -> list[Part]:
    listed = []
    for run in report.runs:
        rates = sorted(rate for _, rate in run.throughput)
        if rates:
            listed.append(
                (
                    run.label,
                    plain(rates[0]),
                    plain(rates[len(rates) // 2]),
                    plain(rates[-1]),
                    len(rates),
                )
            )
    header = ("run", "smallest", "median", "largest", "points")
    beside = Table("Samples per second of each run", header, listed, numeric=(1, 2, 3, 4))
    return _figure(
        curves.throughput(report), f"Samples per second, {curves.throughput_note(report)}.", beside
    )


def timeline(report: Report) -> list[Part]:
    chart = rows.timeline(report)
    if not chart:
        return []
    caption = "When each run was initialised and ran, and what lies between."
    listed = [(f"{gap.after} → {gap.before}", duration(60 * gap.minutes)) for gap in report.gaps]
    if not listed:
        return [Figure(chart, caption)]
    heading = "From the end of a run to the start of the next"
    return [
        Figure(chart, caption),
        Paragraph(_pauses(report)),
        Details(heading, Table(heading, ("runs", "time between"), listed, numeric=(1,)), False),
    ]


def _pauses(report: Report) -> str:
    pauses = sorted(60 * gap.minutes for gap in report.gaps)
    middle, longest = pauses[len(pauses) // 2], pauses[-1]
    text = f"Between runs: {duration(middle)} in the median, at most {duration(longest)}"
    if len({attempt.job_id for attempt in report.attempts}) > 1:
        text += ", with the time between two jobs of the set"
    return f"{text}."


# ---- the machine ----


FAILED_SETTINGS = (
    "A failed setting kept its value. Without a required setting no run starts on the node; "
    "without an optional one runs count, and may be slower."
)
_STATES = {"failed": 0, "ok": 1, "unsupported": 2}
"""State of a host setting -> its place in the table."""


def tunables(report: Report) -> list[Part]:
    if not report.tunables:
        return []
    listed = [
        (
            Cell(setting.knob, code=True),
            setting.wanted,
            setting.before,
            setting.after,
            setting.state,
            fold(setting.nodes),
        )
        for setting in sorted(report.tunables, key=lambda setting: _STATES.get(setting.state, 1))
    ]
    header = ("setting", "wanted", "before the job", "during it", "state", "nodes")
    parts: list[Part] = [Table("Host settings of the nodes", header, listed, states=(4,))]
    if any(setting.state == "failed" for setting in report.tunables):
        parts.append(Paragraph(FAILED_SETTINGS, "note-text"))
    return parts


def environment(report: Report) -> list[Part]:
    note = [Paragraph(report.environment_note, "note-text")] if report.environment_note else []
    listed = [
        (
            Cell(variable.name, code=True),
            Cell(variable.value, code=True),
            variable.place,
            variable.origin,
        )
        for variable in report.environment[:MOST_VARIABLES]
    ]
    header = ("variable", "value", "set in the bundle", "origin")
    listing = (
        [Table("Environment of the runs, as evaluated on the batch host", header, listed)]
        if listed
        else []
    )
    return [*note, *listing] if listed or report.is_set else []


def facts(report: Report) -> list[Part]:
    parts: list[Part] = [
        Table("The set", ("fact", "value"), [(name, Cell(text)) for name, text in report.facts])
    ]
    if report.images:
        listed = [(Cell(image, code=True), where) for image, where in report.images]
        parts.append(Table("Images", ("image or digest", "used by"), listed))
    if report.problems:
        parts += [Heading("Files that could not be used"), Bullets(report.problems[:MOST_FINDINGS])]
    return parts


def findings(report: Report) -> list[Part]:
    score = report.score
    differing = set(score.differences)
    others = [finding for finding in score.findings if finding not in differing]
    rows = _once(others)
    more = (
        [Paragraph(f"{len(rows) - MOST_FINDINGS} more: orchestrator score --compliance")]
        if len(rows) > MOST_FINDINGS
        else []
    )
    whose = "workload's own" if score.own else "referee's"
    return [
        *_found(
            "Where logs are not as described, or runs not one experiment: no reason against a "
            "score",
            _once(score.differences),
        ),
        *_found(f"What the {whose} rules say about the logs", rows),
        *more,
    ]


def _found(caption: str, rows: Sequence[tuple[str | Cell, ...]]) -> list[Part]:
    header = ("severity", "place", "key", "finding")
    return [Table(caption, header, rows[:MOST_FINDINGS])] if rows else []


def _once(findings: Sequence[LogFinding]) -> list[tuple[str | Cell, ...]]:
    """Return a row per finding, also for several logs."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for finding in findings:
        same = finding.severity, finding.key, finding.message
        places.setdefault(same, []).append(finding.place)
    return [
        (
            severity,
            first if not others else f"{first} and {count(len(others), 'other place')}",
            Cell(key, code=True),
            message,
        )
        for (severity, key, message), (first, *others) in places.items()
    ]


SECTIONS = (
    ("times", "Time to train", times),
    ("convergence", "Convergence", convergence),
    ("samples", "Samples to converge and the reference", samples),
    ("throughput", "Throughput", throughput),
    ("arithmetic", "The score, step by step", arithmetic),
    ("outlook", "Outlook and causes", outlook),
    ("timeline", "Timeline and gaps", timeline),
    ("startup", "Start-up and shut-down", startup),
    ("nodes", "Nodes", nodes),
    ("attempts", "Attempts", attempts),
    ("findings", "Findings", findings),
    ("tunables", "Host settings", tunables),
    ("environment", "Environment", environment),
    ("facts", "The set and its images", facts),
)
APPENDIX = frozenset(
    ("arithmetic", "outlook", "timeline", "startup", "nodes", "attempts", "findings", "tunables",
     "environment", "facts")
)  # fmt: skip
"""Sections printed in small type, after the others."""
