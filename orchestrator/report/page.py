"""A report as a self-contained HTML page: no script, no network, equal bytes for equal input."""

from __future__ import annotations

from orchestrator.report.curves import MOST_CURVES
from orchestrator.report.model import Report
from orchestrator.report.rows import patterns
from orchestrator.report.sections import sections
from orchestrator.report.summary import key_facts, summary
from orchestrator.views.markup import Safe, clean, join, tag
from orchestrator.views.page import render
from orchestrator.views.score import about, score_headline
from orchestrator.words import KINDS, train_time


def page(report: Report) -> str:
    score = report.score
    headline = score_headline(score, score.notes)
    sign = f"{KINDS[headline.tone][0]} " if headline.tone else ""
    # The figure stands next to it.
    text = headline.text.removesuffix(f": {train_time(score.minutes)}")
    return render(
        "report.html.j2",
        title=report.title,
        short=headline.text,
        headline=headline,
        subtitle=_subtitle(report),
        summary=summary(report),
        rehearsal=bool(score.no_result),
        figure="" if score.minutes is None else report.unit.text(score.minutes),
        unit=report.unit.name,
        verdict=sign + text,
        published=report.against_published,
        own=bool(score.own),
        key=key_facts(report),
        sections=sections(report),
        patterns=patterns(),
        most_series=MOST_CURVES,
    )


def _subtitle(report: Report) -> Safe:
    score = report.score
    text = f"{'Not an MLPerf result' if score.own else 'MLPerf Training'} · {about(score)}"
    set_id = report.described.get("set_id")
    return join(
        text, *([" · ", tag("span", f"set {clean(set_id)}", class_="id")] if set_id else [])
    )
