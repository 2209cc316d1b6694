"""The round whose rules score a set, unless the user names it."""

from __future__ import annotations

from orchestrator.errors import InputError
from orchestrator.mllog.shipped import OWN, ROUNDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT = "6.0.0"

# Unix milliseconds: a round's last run times. 5.0 was submitted in May 2025, 5.1 in October
# 2025.
_UNTIL = ((1_751_328_000_000, "5.0.0"), (1_767_225_600_000, "5.1.0"))


def chosen_round(text: str) -> str:
    """Return the round for `6.0.0`, `6.0` or `v6.0`. Raises InputError without its rules."""
    version = text.removeprefix("v")
    version = f"{version}.0" if version.count(".") == 1 else version
    if version in ROUNDS:
        return version
    from orchestrator.mllog.installed import how_to_get, installed_rounds, made

    if version not in installed_rounds():
        known = ", ".join((*ROUNDS, *installed_rounds()))
        raise InputError(
            f"there are no rules for round {text!r} here; there are: {known}, and {OWN} for what "
            "is "
            "no MLPerf benchmark",
            hint=how_to_get(version),
        )
    for kind in ("rules", "rcp"):
        made(kind, version)
    return version


def ruleset_problem(text: str) -> str:
    """Return why no set can be scored by this ruleset, with the command that helps; or ""."""
    try:
        if text != OWN:
            chosen_round(text)
    except InputError as error:
        return f"{error.message}; {error.hint}"
    return ""


def requires_key(ruleset: str, key: str) -> bool:
    """Return whether a ruleset wants `key` in every log; False for unknown rules."""
    if ruleset == OWN:
        return False
    from orchestrator.mllog.rules import rules

    try:
        common = rules(chosen_round(ruleset)).config("common")
    except InputError:
        return False
    return common is not None and key in common.keys and common.keys[key].least > 0


def guess_round(benchmark: Any, starts: list[float]) -> tuple[str, str]:
    """Return (round, why), by the date of the runs and the benchmarks of the rounds."""
    from orchestrator.mllog.rules import rules

    first = min(starts, default=None)
    round_, why = DEFAULT, "the default"
    for until, name in _UNTIL:
        if first is not None and 0 < first < until:
            round_, why = name, "from the date of the runs"
            break
    if isinstance(benchmark, str) and benchmark not in rules(round_).benchmarks:
        having = [name for name in ROUNDS if benchmark in rules(name).benchmarks]
        # A later round's rules may ask for keys that such a log lacks.
        if later := [name for name in having if ROUNDS.index(name) > ROUNDS.index(round_)]:
            return later[0], f"the oldest after {round_} that has {benchmark}"
        if having:
            return having[-1], f"the newest that has {benchmark}"
    return round_, why
