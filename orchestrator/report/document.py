"""A report as JSON: the page's content, with stable names."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from orchestrator.mllog.result import plain
from orchestrator.report.model import Report
from orchestrator.report.summary import summary


def document(report: Report) -> dict[str, Any]:
    """Return the report; `score` is as from `orchestrator score --json`. NaN and infinity are
    None."""
    members = {
        "title": report.title,
        "summary": summary(report),
        "score": report.score.to_json(),
        "target": report.target,
        "metric": report.metric,
        "smaller_is_better": report.smaller_is_better,
        "facts": [{"name": name, "value": value} for name, value in report.facts],
        "runs": _listed(report.runs),
        "gaps": _listed(report.gaps),
        "arithmetic": [step.to_json() for step in report.steps],
        "attempts": _listed(report.attempts),
        "nodes": [node.to_json() for node in report.nodes],
        "slow_signs": list(report.slow_signs),
        "groups": [group.to_json() for group in report.groups],
        "bandwidth": _listed(report.bandwidth),
        "published": [entry.to_json() for entry in report.published],
        "startups": _listed(report.startups),
        "published_startup": [startup.to_json() for startup in report.published_startup],
        "tunables": _listed(report.tunables),
        "environment": _listed(report.environment),
        "images": [{"image": image, "used_by": where} for image, where in report.images],
        "problems": list(report.problems),
    }
    return {name: plain(value) for name, value in members.items()}


def _listed(items: tuple[Any, ...]) -> list[Any]:
    return [json.loads(json.dumps(asdict(item), default=str)) for item in items]
