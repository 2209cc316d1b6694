"""A report as Markdown, for an issue, a pull request or a chat."""

from __future__ import annotations

from orchestrator.report.model import Report
from orchestrator.report.sections import sections
from orchestrator.report.summary import key_facts, summary
from orchestrator.views.figures import MISSING
from orchestrator.views.markdown import rendered, section, text
from orchestrator.views.parts import FactList
from orchestrator.views.score import about, score_headline

SECTIONS = (
    "times",
    "arithmetic",
    "outlook",
    "startup",
    "nodes",
    "attempts",
    "findings",
    "tunables",
)


def markdown(report: Report) -> str:
    """Return the report without charts, environment and images."""
    parts = [f"# {text(report.title)}", _head(report)]
    parts += [section(part) for part in sections(report) if part.name in SECTIONS]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(report: Report) -> str:
    score = report.score
    sentences = [summary(report), about(score), *report.against_published, *score.notes]
    facts = [*key_facts(report), *(pair for pair in report.facts if pair[0] == "ledger")]
    if set_id := report.described.get("set_id"):
        facts += [("set", str(set_id)), ("image", str(report.described.get("image", MISSING)))]
    return rendered([score_headline(score, sentences), FactList(facts)])
