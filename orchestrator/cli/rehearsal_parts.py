"""The parts of a rehearsal: timeline, and trials with several numbers of spares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.views.parts import Table
from orchestrator.words import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.simulation.rehearsal import Moment
    from orchestrator.simulation.trials import SparesResult


def timeline_table(moments: Sequence[Moment]) -> Table:
    """Return a row per moment: `5:33:20`, actor, event."""
    rows = [(_clock(moment.at_s), moment.kind, moment.text) for moment in moments]
    return Table("Timeline", ("time", "who", "event"), rows, numeric=(0,))


def _clock(at_s: float) -> str:
    minutes, second = divmod(int(at_s), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def spares_table(results: Sequence[SparesResult], within_s: float | None, limit: str) -> Table:
    """Return a row per number of spares; `limit`: `within_s` as text."""
    header = [
        "spares", "nodes", "failures", "node-hours", "median", "90 %", "99 %", "without resume",
        "complete",
    ]  # fmt: skip
    header += [] if within_s is None else [f"within {limit}"]
    rows = [_spares_row(result, within_s) for result in results]
    return Table("Sets by spare nodes", header, rows, numeric=range(len(header)))


def _spares_row(result: SparesResult, within_s: float | None) -> list[str]:
    failures = sum(trial.failures for trial in result.trials) / len(result.trials)
    times = [result.quantile(share) for share in (0.5, 0.9, 0.99)]
    shares = [
        result.unattended,
        result.complete,
        *([] if within_s is None else [result.within(within_s)]),
    ]
    return [
        str(result.spares),
        str(result.nodes),
        f"{failures:.2f}",
        f"{result.node_hours:.0f}",
        *(duration(time) if time < float("inf") else "never" for time in times),
        *(f"{100 * share:.1f} %" for share in shares),
    ]
