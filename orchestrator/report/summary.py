"""A report in two sentences, and its figures."""

from __future__ import annotations

from orchestrator.mllog.olympic import LOST
from orchestrator.nodes.names import fold
from orchestrator.report.model import Report
from orchestrator.views.score import score_facts
from orchestrator.words import count


def key_facts(report: Report) -> list[tuple[str, str]]:
    """Return the figures of the score, and the target."""
    pairs = score_facts(report.score, report.unit)
    if report.target is not None:
        bound = "≤" if report.smaller_is_better else "≥"
        pairs.append(("target", f"{report.metric} {bound} {report.target:g}"))
    return pairs


def summary(report: Report) -> str:
    """Return the result, and the trouble on the way."""
    rehearsal = f"A rehearsal, not a result: {report.score.no_result}."
    parts = [rehearsal if report.score.no_result else "", _result(report), _trouble(report)]
    return " ".join(filter(None, parts))


def _result(report: Report) -> str:
    score, unit = report.score, report.unit
    workload = score.benchmark or "the benchmark"
    if score.minutes is None:
        finished = sum(run.minutes is not None for run in report.runs)
        runs = f"{finished} of {count(score.runs_required, 'run')} finished"
        return f"No valid score for {workload} on {report.system}: {runs}."
    times = [run.minutes for run in report.runs if run.use == "counted" and run.minutes is not None]
    where = f"{workload} on {report.system} took {unit.full(score.minutes)}"
    mean = f"the mean of {count(len(times), 'run')}"
    if len(times) > 1:
        mean += f" between {unit.text(min(times))} and {unit.full(max(times))}"
    if report.scale != 1:
        mean += f", times the normalisation factor {report.scale:.6f}"
    return f"{where}, {mean}."


def _trouble(report: Report) -> str:
    if not report.is_set:
        return ""
    lost = sum(attempt.outcome in LOST for attempt in report.attempts)
    excluded = [node.node for node in report.nodes if node.set_aside]
    blamed = [node.node for node in report.nodes if node.blamed]
    parts = [f"{count(lost, 'attempt')} lost to the machines and repeated"] if lost else []
    parts += [f"excluded: {fold(excluded)}"] if excluded else []
    parts += [f"blamed: {fold(blamed)}"] if blamed else []
    if not parts:
        return "No attempt was lost, no node excluded."
    return f"On the way: {'; '.join(parts)}."
