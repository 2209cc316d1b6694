"""A report as one self-contained HTML page: no script, no network, the same bytes for the same input."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.report.charts import patterns
from orchestrator.report.figures import minutes, plain
from orchestrator.report.markup import Safe, clean, join, tag
from orchestrator.report.model import Report
from orchestrator.report.sections import SECTIONS
from orchestrator.report.style import CSS

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(report: Report) -> str:
    """The page's text; encode it as UTF-8."""
    sections = [(name, title, body) for name, title, make in SECTIONS if (body := _body(make, report))]
    head = tag(
        "head",
        Safe('<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        Safe(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'),
        tag("title", f"{report.title}: {_headline(report)}"),
        tag("style", Safe(CSS)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#content", class_="skip"),
        patterns(),
        tag(
            "header",
            tag("h1", report.title),
            tag("p", _subtitle(report), class_="sub"),
            _verdict(report),
            _key(report),
            _contents([(name, title) for name, title, _ in sections]),
        ),
        tag(
            "main",
            *(
                tag("section", tag("h2", title, id=f"{name}-heading"), part, id=name, aria_labelledby=f"{name}-heading")
                for name, title, part in sections
            ),
            id="content",
            tabindex="-1",
        ),
        tag("footer", tag("p", _source(report))),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def _body(make: Callable[[Report], Safe], report: Report) -> Safe:
    return make(report)


def _headline(report: Report) -> str:
    score = report.score
    return f"{score.minutes:.2f} minutes" if score.minutes is not None else "no valid score"


def _subtitle(report: Report) -> str:
    score = report.score
    parts = [f"MLPerf Training, round {score.ruleset} ({score.ruleset_from})", f"{score.division} division"]
    if set_id := report.described.get("set_id"):
        parts.append(f"set {clean(set_id)}")
    return " · ".join(parts)


def _verdict(report: Report) -> Safe:
    score = report.score
    if score.valid and score.minutes is not None:
        number = minutes(score.minutes) if score.minutes < 0.1 else f"{score.minutes:.2f}"
        big = tag("div", number, tag("span", "minutes", class_="unit"), class_="big")
        words = tag("div", tag("div", "✓ Valid score", class_="word"), *_notes(report), class_="words")
        return tag("div", big, words, class_="verdict")
    word = "✗ No valid score" + (" yet" if score.forecast and score.forecast.get("can_become_valid") else "")
    reasons = tag("ul", *(tag("li", reason) for reason in score.reasons))
    return tag(
        "div",
        tag("div", tag("div", word, class_="word"), reasons, *_notes(report), class_="words"),
        class_="verdict no",
    )


def _notes(report: Report) -> list[Safe]:
    return [tag("p", note) for note in report.score.notes]


def _key(report: Report) -> Safe:
    score, result = report.score, report.score.rcp
    batch = "–" if score.batch_size == -1 else clean(score.batch_size, 20)
    pairs = [
        ("runs", f"{len(score.runs)} of {score.runs_required}"),
        ("olympic mean", f"{minutes(score.olympic_mean)} min"),
        ("normalisation factor", "–" if score.factor is None else f"{score.factor:.6f}"),
        ("batch size", batch),
        (
            "RCP test",
            "does not apply"
            if result is None
            else f"{'passed' if result.passed else 'failed'}: {clean(result.message, 80)}",
        ),
        ("seeds", "ok" if score.seeds_ok else "check fails"),
    ]
    if (
        result is not None
        and result.point is not None
        and result.submission_mean is not None
        and result.submission_mean < 1e8
    ):
        pairs.append(
            (
                "samples to converge",
                f"{plain(result.submission_mean)} ({result.submission_mean / result.point.mean:.3f} × reference)",
            )
        )
    if report.target is not None:
        pairs.append(("target", f"{report.metric} {'≤' if report.smaller_is_better else '≥'} {report.target:g}"))
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in pairs), class_="key")


def _contents(sections: list[tuple[str, str]]) -> Safe:
    return tag(
        "nav",
        tag("ul", *(tag("li", tag("a", title, href=f"#{name}")) for name, title in sections)),
        aria_label="Contents",
    )


def _source(report: Report) -> Safe:
    from orchestrator import __version__

    return join(
        f"Made by orchestrator {__version__} from the logs in this folder; rules and reference points from "
        f"mlperf-logging. All times are UTC. MLPerf is a trademark of MLCommons."
    )
