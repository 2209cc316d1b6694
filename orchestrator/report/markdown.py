"""A report as Markdown, for an issue, a pull request or a chat."""

from __future__ import annotations

from orchestrator.report.model import Report
from orchestrator.report.sections import sections
from orchestrator.report.summary import summary
from orchestrator.views.markdown import section, text
from orchestrator.words import count

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
    division = f", {score.division} division" if score.division else ""
    batch = "–" if score.batch_size == -1 else score.batch_size
    lines = [
        f"**{text(score.verdict, 1000)}**",
        "",
        text(summary(report), 1000),
        "",
        (
            f"- {text(score.rules_text)}{division}, batch size {text(batch)}, "
            f"{len(score.runs)} of {count(score.runs_required, 'run')}"
        ),
    ]
    lines += [f"- ledger: {text(value, 1000)}" for name, value in report.facts if name == "ledger"]
    if score.rcp:
        lines.append(f"- RCP test {text(score.rcp.verdict)}")
    lines += [f"- {text(line, 400)}" for line in report.against_published]
    lines += [f"- {text(note, 400)}" for note in score.notes]
    if set_id := report.described.get("set_id"):
        lines.append(f"- set {text(set_id)}, image {text(report.described.get('image', '–'))}")
    return "\n".join(lines)
