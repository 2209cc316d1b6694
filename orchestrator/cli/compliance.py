"""`score --compliance`: findings with file, line and expected value; for sets also logged values
that differ from their environment or descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.output import one_or_more, print_json
from orchestrator.errors import ExitCode

if TYPE_CHECKING:
    from orchestrator.mllog.own import OwnRules
    from orchestrator.mllog.result import Score


def show(folders: list[str], as_json: bool, *, ruleset: str, own_rules: OwnRules | None) -> int:
    """Print findings; return ExitCode.NO_SCORE unless all are warnings."""
    from orchestrator.mllog.score import score_dir

    scores = [score_dir(folder, ruleset=ruleset, own_rules=own_rules) for folder in folders]
    if as_json:
        print_json(*one_or_more("check", [document(score) for score in scores]))
    else:
        from orchestrator.views.score import check_text

        for score in scores:
            print(check_text(score))
    return ExitCode.OK if all(map(is_clean, scores)) else ExitCode.NO_SCORE


def is_clean(score: Score) -> bool:
    """Return whether there are only warnings."""
    return score.compliant and score.seeds_ok and not score.differences


def document(score: Score) -> dict[str, object]:
    """Return output of kind `check`."""
    findings = score.findings
    return {
        "directory": score.directory,
        "benchmark": score.benchmark,
        "round": score.ruleset,
        "files": len(score.runs),
        "compliant": score.compliant,
        "seeds_ok": score.seeds_ok,
        "as_described": not score.differences,
        "findings": [finding.to_json() for finding in findings],
    }
