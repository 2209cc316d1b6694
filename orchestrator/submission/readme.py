"""A packaged implementation's README: how to run it, which runs are submitted and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.mllog.numbers import finite
from orchestrator.mllog.window import launch_order
from orchestrator.scheduler.advice import start_set
from orchestrator.views.figures import minutes, moment, plain
from orchestrator.views.markdown import code, table, text
from orchestrator.views.score import logged
from orchestrator.words import count

if TYPE_CHECKING:
    from orchestrator.submission.chosen import Chosen


def readme(chosen: Chosen, system: str, scripts: Sequence[str]) -> str:
    """Return README.md."""
    score = chosen.score
    parts = [
        f"# {text(score.benchmark)} on {text(system)}",
        _run(chosen, scripts),
        "## Runs in this package",
        _rule(chosen),
        _table(chosen),
    ]
    if score.unscored:
        rows = [
            (f"{attempt['run']}.{attempt['attempt']}", attempt["outcome"], attempt["reason"])
            for attempt in score.unscored
        ]
        parts += [
            "## Lost attempts",
            (
                "They died or were ended by the infrastructure. They are no evidence about "
                "convergence, and are not scored."
            ),
            table(("run.attempt", "outcome", "reason"), rows),
        ]
    parts.append("`runs.json` has the same for programs.")
    return "\n\n".join(parts) + "\n"


def _run(chosen: Chosen, scripts: Sequence[str]) -> str:
    described = chosen.source.described
    if not scripts:
        return (
            "The scripts of these runs are not part of the folder that this package was made from."
        )
    image = f" in the image {code(described.get('image'))}" if described.get("image") else ""
    start = start_set(described.get("scheduler", ""))
    nodes = described.get("nodes")
    where = f" on {count(nodes, 'node')}" if isinstance(nodes, int) else ""
    config = next((name for name in scripts if name.startswith("config_")), "")
    return (
        f"## How to run\n\nThe scripts ran{image}{where}:\n\n"
        f"```\n{start}\n```\n\n"
        f"{code(config)} is the environment of the runs, `settings.sh` the places of this site. "
        "`manifest.json` has the hash of "
        "every file."
    )


def _rule(chosen: Chosen) -> str:
    score, used = chosen.score, len(chosen.runs)
    lost = len(score.pending)
    why = "the infrastructure ended all their attempts"
    more = f" {count(lost, 'more run')} declared, without a result: {why}." if lost else ""
    if score.window:
        return (
            f"{len(score.runs)} consecutive runs were made, {used} are required. This package "
            f"contains the window of {used} runs, consecutive in launch order, whose score is the "
            f"median of all windows. All runs are listed.{more}"
        )
    made = "have a result" if lost else "were made"
    return f"Exactly the {used} required runs {made}; all of them are here, in launch order.{more}"


def _table(chosen: Chosen) -> str:
    used = {run.file: f"result_{index}.txt" for index, run in enumerate(chosen.runs)}
    rows = [
        (
            used.get(run.file, "not used"),
            run.file,
            moment(run.start),
            minutes(finite(run.minutes)),
            plain(finite(run.samples)),
            logged(run.seed),
            run.use,
        )
        for run in launch_order(chosen.score.runs)
    ]
    return table(("result", "from", "started", "minutes", "samples", "seed", "use"), rows)
