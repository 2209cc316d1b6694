"""A report as a self-contained HTML page: no script, no network, equal bytes for equal input."""

from __future__ import annotations

from orchestrator.report.curves import MOST_CURVES
from orchestrator.report.model import Report
from orchestrator.report.rows import patterns
from orchestrator.report.sections import sections
from orchestrator.report.summary import summary
from orchestrator.views.figures import plain
from orchestrator.views.markup import Safe, clean, join, tag
from orchestrator.views.page import render


def page(report: Report) -> str:
    score = report.score
    return render(
        "report.html.j2",
        title=report.title,
        headline=_headline(report),
        subtitle=_subtitle(report),
        summary=summary(report),
        figure="" if score.minutes is None else report.unit.text(score.minutes),
        unit=report.unit.name,
        published=report.against_published,
        can_become_valid=bool(score.forecast and score.forecast.get("can_become_valid")),
        score=score,
        key=_key(report),
        sections=sections(report),
        patterns=patterns(),
        most_series=MOST_CURVES,
    )


def _headline(report: Report) -> str:
    score, unit = report.score, report.unit
    return (
        "no valid score" if score.minutes is None else f"{unit.text(score.minutes)} {unit.name}"
    ) + (" (rehearsal)" if score.no_result else "")


def _subtitle(report: Report) -> Safe:
    score = report.score
    parts = ["Not an MLPerf result" if score.own else "MLPerf Training", score.rules_text]
    parts += [f"{score.division} division"] if score.division else []
    if not (set_id := report.described.get("set_id")):
        return join(" · ".join(parts))
    return join(" · ".join([*parts, ""]), tag("span", f"set {clean(set_id)}", class_="id"))


def _key(report: Report) -> list[tuple[str, str]]:
    score, result = report.score, report.score.rcp
    batch = "–" if score.batch_size == -1 else clean(score.batch_size, 20)
    pairs = [
        ("runs", f"{len(score.runs)} of {score.runs_required}"),
        ("olympic mean", report.unit.full(score.olympic_mean)),
        ("normalisation factor", "–" if score.factor is None else f"{score.factor:.6f}"),
        ("batch size", batch),
        (
            "RCP test",
            "does not apply" if result is None else clean(result.verdict, 100),
        ),
        ("seeds", "all different" if score.seeds_ok else "check fails"),
    ]
    if (
        result is not None
        and result.point is not None
        and result.submission_mean is not None
        and result.submission_mean < 1e8
    ):
        pairs += [
            ("samples to converge", plain(result.submission_mean)),
            ("samples / reference", f"{result.submission_mean / result.point.mean:.3f}"),
        ]
    if report.target is not None:
        pairs.append(
            (
                "target",
                f"{report.metric} {'≤' if report.smaller_is_better else '≥'} {report.target:g}",
            )
        )
    return pairs
