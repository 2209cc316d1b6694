"""The round whose rules score a set, if the user names none."""

from __future__ import annotations

from orchestrator.errors import InputError
from orchestrator.mllog.own import OWN
from orchestrator.mllog.rules import ROUNDS, rules

# importing typing is a tenth of a cold `orchestrator score`
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT = "6.0.0"

# Unix milliseconds: the last run times of a round. 5.0 was submitted in May 2025, 5.1 in October
# 2025.
_UNTIL = ((1_751_328_000_000, "5.0.0"), (1_767_225_600_000, "5.1.0"))


def chosen_round(text: str) -> str:
    """Return a round as users write it (`6.0.0`, `6.0`, `v6.0`). Raises InputError for a round
    without rules here."""
    version = text.removeprefix("v")
    version = f"{version}.0" if version.count(".") == 1 else version
    if version not in ROUNDS:
        raise InputError(
            f"there are no rules for round {text!r} here",
            hint=f"--ruleset takes {', '.join(ROUNDS)}, and {OWN} for what is no MLPerf benchmark",
        )
    return version


def guess_round(benchmark: Any, starts: list[float]) -> tuple[str, str]:
    """Return (round, why): by the date of the runs, and by which rounds have the benchmark."""
    first = min(starts, default=None)
    round_, why = DEFAULT, "the default"
    for until, name in _UNTIL:
        if first is not None and 0 < first < until:
            round_, why = name, "from the date of the runs"
            break
    if isinstance(benchmark, str) and benchmark not in rules(round_).benchmarks:
        having = [name for name in ROUNDS if benchmark in rules(name).benchmarks]
        if having:
            return having[-1], f"the newest that has {benchmark}"
    return round_, why
