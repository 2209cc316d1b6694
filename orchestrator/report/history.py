"""A page of all sets of a log directory: links to reports, scores over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.report.chart import Chart, both, fixed, legend, stroke, swatch, widened
from orchestrator.report.model import Report
from orchestrator.views.figures import MISSING, Unit, date, moment, unit_of_runs
from orchestrator.views.markup import Safe, join, void
from orchestrator.views.page import render
from orchestrator.views.parts import Bullets, Cell, Figure, Part, Section, Table
from orchestrator.words import count

if TYPE_CHECKING:
    from orchestrator.published import PublishedResult

MOST_SETS = 500
"""Listed sets of a system and workload, the newest."""


@dataclass(frozen=True, slots=True)
class IndexedSet:
    """A set's index entry. `mean`: the olympic mean so far, in minutes."""

    name: str
    """Its folder's name; its report is <name>.html."""
    system: str = ""
    workload: str = ""
    round: str = ""
    when_ms: float = 0.0
    minutes: float | None = None
    mean: float | None = None
    runs: str = ""
    remark: str = ""
    """The verdict, without a valid score or a result."""
    mlperf: bool = True
    published: tuple[PublishedResult, ...] = ()
    problem: str = ""
    """Why there is no report."""

    @property
    def value(self) -> float | None:
        return self.mean if self.minutes is None else self.minutes


def indexed(name: str, report: Report) -> IndexedSet:
    score = report.score
    starts = [run.start_ms for run in report.runs if run.start_ms]
    created = report.described.get("created_ms")
    when = min(starts) if starts else created if isinstance(created, (int, float)) else 0.0
    return IndexedSet(
        name,
        report.system,
        str(report.described.get("workload") or score.benchmark),
        str(score.ruleset),
        when,
        None if score.no_result else score.minutes,
        score.olympic_mean,
        f"{len(score.runs)} of {score.runs_required}",
        score.verdict if score.no_result else "" if score.valid else "; ".join(score.reasons),
        score.own is None,
        report.published,
    )


def history_page(log_dir: str, entries: Sequence[IndexedSet]) -> str:
    groups: dict[tuple[str, str], list[IndexedSet]] = {}
    for entry in entries:
        if not entry.problem:
            groups.setdefault((entry.workload, entry.system), []).append(entry)
    ordered = [sorted(groups[key], key=lambda entry: -entry.when_ms) for key in sorted(groups)]
    unread = [f"{entry.name}: {entry.problem}" for entry in entries if entry.problem]
    sections = [Section("overview", "Overview", [_overview(ordered)])] if ordered else []
    for index, group in enumerate(ordered):
        title = f"{group[0].workload} on {group[0].system}" + (
            "" if group[0].mlperf else " (no MLPerf benchmark)"
        )
        sections.append(Section(f"group-{index}", title, _group(index, group)))
    if unread:
        sections.append(Section("unread", "Sets that could not be read", [Bullets(unread)]))
    return render(
        "history.html.j2",
        title="Sets",
        short=f"{len(entries)} in {log_dir}",
        subtitle=f"{count(len(entries), 'set')} in {log_dir}",
        sections=sections,
        patterns=Safe(""),
    )


def _overview(groups: Sequence[Sequence[IndexedSet]]) -> Table:
    rows = []
    for index, group in enumerate(groups):
        valid = [entry.minutes for entry in group if entry.minutes is not None]
        unit = unit_of_runs(entry.value for entry in group)
        newest = next((entry for entry in group if entry.minutes is not None), None)
        rows.append(
            (
                Cell(f"{group[0].workload} on {group[0].system}", href=f"#group-{index}"),
                len(group),
                len(valid),
                unit.full(min(valid)) if valid else MISSING,
                unit.full(newest.minutes) if newest else MISSING,
                _against(newest) if newest else MISSING,
            )
        )
    header = ("what", "sets", "valid", "best score", "newest score", "newest against the published")
    return Table("Systems and workloads", header, rows, numeric=(1, 2, 3, 4))


def _against(entry: IndexedSet) -> str:
    from orchestrator.published import sentence

    return (
        sentence(entry.minutes, entry.published[0])
        if entry.published and entry.minutes is not None
        else MISSING
    )


def _group(index: int, group: Sequence[IndexedSet]) -> list[Part]:
    from orchestrator.published import difference, label, signed

    unit, head = (
        unit_of_runs(entry.value for entry in group),
        f"{group[0].system}-{group[0].workload}-",
    )
    beside = next((entry.published[0] for entry in group if entry.published), None)

    def against(entry: IndexedSet) -> str:
        if entry.minutes is None or not entry.published:
            return MISSING
        away = signed(difference(entry.minutes, entry.published[0]))
        return (
            away if entry.published[0] == beside else f"{away} against {label(entry.published[0])}"
        )

    rows = [
        (
            Cell(entry.name.removeprefix(head), href=f"{quote(entry.name, safe='')}.html"),
            unit.text(entry.minutes)
            if entry.minutes is not None or entry.mean is None
            else f"({unit.text(entry.mean)})",
            *([against(entry)] if beside else []),
            entry.runs,
            entry.round,
            moment(entry.when_ms),
        )
        for entry in group[:MOST_SETS]
    ]
    published = [f"against {label(beside)}"] if beside else []
    header = ("set", f"score, {unit.name}", *published, "runs", "round", "first run")
    caption = (
        f"Sets {head}…, newest first; in brackets the mean of a rehearsal or without a valid score"
    )
    below = [entry.remark for entry in group[:MOST_SETS]]
    listing = Table(caption, header, rows, (1, 2) if beside else (1,), below=below)
    chart = _chart(index, group[:MOST_SETS], unit)
    return [*([Figure(chart, "The axis does not start at 0.")] if chart else []), listing]


def _chart(index: int, group: Sequence[IndexedSet], unit: Unit) -> Safe:
    known = [
        (entry, entry.value) for entry in group if entry.value is not None and entry.when_ms > 0
    ]
    if not known:
        return Safe("")
    published = next((entry.published[0] for entry in group if entry.published), None)
    times = [entry.when_ms for entry, _ in known]
    values = [value for _, value in known] + ([published.minutes] if published else [])
    first, last = min(times), max(times)
    pad = max((last - first) * 0.04, 3_600_000.0)

    def draw(width: int) -> Chart:
        low, high = widened([unit.of(value) for value in values], 0.1)
        chart = Chart(
            f"history-{index}",
            f"Scores of {group[0].workload} on {group[0].system} over time",
            f"{count(len(known), 'set')} from {moment(first)} to {moment(last)}",
            (first - pad, last + pad),
            (low, high),
            width=width,
            plot=150,
            left=64,
            right=34,
        )
        wanted = 2 if chart.narrow else 4
        ticks = (
            [first + (last - first) * step / wanted for step in range(wanted + 1)]
            if last > first
            else [first]
        )
        chart.x_axis("first run", [(tick, date(tick)) for tick in ticks])
        chart.y_axis(unit.name)
        if published:
            chart.level(unit.of(published.minutes), "published")
        for entry, value in known:
            state = "score" if entry.minutes is not None else "mean"
            kind = "c0" if entry.minutes is not None else "hollow"
            x, y = fixed(chart.x(entry.when_ms)), fixed(chart.y(unit.of(value)))
            says = f"{entry.name}: {state} {unit.full(value)}, {moment(entry.when_ms)}"
            chart.mark(says, void("circle", class_=f"dot {kind}", cx=x, cy=y, r=5.5))
        return chart

    key = [
        (_dot("c0"), "valid score"),
        (_dot("hollow"), "mean of a rehearsal, or without a valid score"),
    ]
    if published:
        said = (
            f"published {published.minutes:.2f} min, {published.submitter}, round {published.round}"
        )
        key.append((stroke("published"), said))
    return join(both(draw), legend(*key))


def _dot(kind: str) -> Safe:
    return swatch(void("circle", class_=f"dot {kind}", cx=8, cy=8, r=5.5), width=16, height=16)
