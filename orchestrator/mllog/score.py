"""From the logs of a set to its score, in the referee's way, with every reason.

A score is valid if both of the referee's programs would accept the folder: the package checker
(number of files, compliance, seeds, RCP) and the result summarizer (the mean of the compliant runs,
times the RCP's normalisation factor).
"""

from __future__ import annotations

import zlib

from orchestrator.errors import InputError
from orchestrator.mllog.compliance import LogFinding
from orchestrator.mllog.own import OwnRules
from orchestrator.mllog.reader import Log, read_log
from orchestrator.mllog.referee import score_run, score_runs, still_to_come
from orchestrator.mllog.result import RunScore, Score
from orchestrator.mllog.rounds import chosen_round, guess_round
from orchestrator.mllog.rules import Rules, rules
from orchestrator.mllog.shapes import Shapes
from orchestrator.mllog.shipped import OWN, ROUNDS
from orchestrator.mllog.slowness import explain
from orchestrator.mllog.source import RunFile, Source, find_source

__all__ = ["RunScore", "Score", "read_logs", "score_dir", "score_run", "score_runs"]


def score_dir(
    directory: str | Source,
    *,
    ruleset: str = "",
    window: bool = False,
    minutes_left: float | None = None,
    own_rules: OwnRules | None = None,
) -> Score:
    """Score a set, or its logs found already, by the rules of `ruleset` (guessed if empty) or a
    workload's `own_rules`.

    `ruleset` "own" takes the workload's own rules from the set. `window` applies the median-window
    rule to a folder with too many runs (a set folder always gets it); `minutes_left` is the
    remaining time of an unfinished set. Raises InputError.
    """
    source = directory if isinstance(directory, Source) else find_source(directory)
    logs = read_logs(source)
    round_rules, why = (own_rules, "--workload") if own_rules else _rules(ruleset, source, logs)
    runs = [score_run(run, log, round_rules) for run, log in logs]
    differing = _differences(source, logs)
    logs.clear()
    score = score_runs(source.directory, runs, round_rules, why, source).replace(
        differences=differing
    )
    score = _with_outlook(score, round_rules, window or source.is_set, minutes_left)
    return score.replace(
        reasons=(*score.reasons, *still_to_come(score), *source.refused),
        notes=(*score.notes, *source.remarks),
    )


def read_logs(source: Source) -> list[tuple[RunFile, Log]]:
    """Read a set's logs. Raises InputError for an unreadable file."""
    shapes = Shapes()
    logs = []
    for run in source.files:
        try:
            logs.append((run, read_log(run.path, source.inside, shapes=shapes)))
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{run.path}: cannot be read: {error}",
                hint="copy the file again from where it was written",
            ) from error
    return logs


def _rules(
    wanted: str, source: Source, logs: list[tuple[RunFile, Log]]
) -> tuple[Rules | OwnRules, str]:
    """Return (the applicable rules, why these)."""
    named = wanted or str(source.described.get("ruleset") or "")
    if named:
        why = "--ruleset" if wanted else "set.json"
        if named == OWN:
            return OwnRules.of_set(source), why
        applied = rules(chosen_round(named))
        if applied.ruleset not in ROUNDS:
            why = f"{why}; rules of the installed {applied.source}, equal for {', '.join(ROUNDS)}"
        return applied, why
    starts = [start for _, log in logs if (start := log.start_stop[0]) is not None]
    guessed, why = guess_round(
        next((log.benchmark for _, log in logs if log.benchmark is not None), None), starts
    )
    return rules(guessed), why


def _differences(source: Source, logs: list[tuple[RunFile, Log]]) -> tuple[LogFinding, ...]:
    """Return differences from the description, and between the runs."""
    findings: list[LogFinding] = []
    if source.workload.get("logged"):
        from orchestrator.mllog.described import differences

        findings += differences(source, logs)
    if source.is_set and len(source.files) > 0:
        from orchestrator.mllog.experiment import changes

        findings += changes(source)
    return tuple(findings)


def _with_outlook(
    score: Score, round_rules: Rules | OwnRules, adopt: bool, minutes_left: float | None
) -> Score:
    """Add the parts for some sets only, imported only then."""
    if len(score.runs) > score.runs_required:
        from orchestrator.mllog.window import apply_window

        score = apply_window(score, round_rules, adopt=adopt)
    elif len(score.runs) < score.runs_required:
        from orchestrator.mllog.forecast import forecast

        score = score.replace(forecast=forecast(score, minutes_left))
    return score.replace(why=tuple(explain(score)))
