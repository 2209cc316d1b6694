"""Rules of rounds without built-in rules, from the installed mlperf-logging.

Before any use, the built-in rounds are made from that package and compared with the shipped data: a
package unknown to this translation is refused.
"""

from __future__ import annotations

import os

from orchestrator.errors import Fix, InputError
from orchestrator.installation import install_command
from orchestrator.mllog.shipped import ROUNDS, packaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

PACKAGE, DISTRIBUTION = "mlperf_logging", "mlperf-logging"
OLDEST = (5, 0, 0)
"""Rules of older rounds were never compared."""

_MADE: dict[tuple[str, str], dict[str, Any]] = {}
_EQUAL: list[str] = []
"""The checked package."""


def installed_rounds() -> tuple[str, ...]:
    """Return the rounds of the installed mlperf-logging alone, oldest first; () without it. Imports
    nothing of it."""
    folder = _folder()
    if folder is None:
        return ()
    names = [name.removeprefix("training_") for name in os.listdir(folder / "compliance_checker")]
    versions = [
        tuple(map(int, name.split(".")))
        for name in names
        if name.count(".") == 2 and name.replace(".", "").isdecimal()
    ]
    rounds = [".".join(map(str, version)) for version in sorted(versions) if version >= OLDEST]
    return tuple(name for name in rounds if name not in ROUNDS)


def made(kind: str, ruleset: str) -> dict[str, Any]:
    """Return a round's data of `kind` ("rules", "rcp"), made from the installed package.

    Raises InputError if it lacks the round, or gives other built-in rounds.
    """
    if ruleset not in installed_rounds():
        raise InputError(f"there are no rules for round {ruleset!r} here", hint=how_to_get(ruleset))
    if (kind, ruleset) not in _MADE:
        check_equal()
        _MADE[kind, ruleset] = _make(kind, ruleset)
    return _MADE[kind, ruleset]


def check_equal() -> str:
    """Return name and version of the installed package, which gives all built-in rounds exactly.

    Raises InputError without it, or with the differences.
    """
    if _EQUAL:
        return _EQUAL[0]
    if _folder() is None:
        raise InputError(
            "mlperf-logging is not installed next to orchestrator",
            fix=Fix(install_command(DISTRIBUTION)),
        )
    differing: list[str] = []
    for ruleset in ROUNDS:
        for kind in ("rules", "rcp"):
            ours, theirs = packaged(kind, ruleset), _make(kind, ruleset)
            differing += [f"{kind} of {ruleset}: {line}" for line in _differences(ours, theirs)]
    theirs_source = str(_make("rules", ROUNDS[-1])["source"])
    if differing:
        shown = "".join(f"\n    {line}" for line in differing[:8])
        more = f"\n    and {len(differing) - 8} more" if len(differing) > 8 else ""
        raise InputError(
            f"the installed {theirs_source} does not give the rules of the built-in rounds, so its "
            f"others are not taken over:{shown}{more}",
            hint="install a version that does, such as the one the built-in rules are from: "
            f"{packaged('rules', ROUNDS[-1])['source'].replace(' ', '==')}",
        )
    _EQUAL.append(theirs_source)
    return theirs_source


def how_to_get(ruleset: str) -> str:
    """Return the way to the rules of an unknown round."""
    command = install_command(DISTRIBUTION, newer=_folder() is not None)
    return f"{command} (a version that has training_{ruleset})"


def _make(kind: str, ruleset: str) -> dict[str, Any]:
    from warnings import catch_warnings, simplefilter

    from orchestrator.mllog import translation

    folder = _folder()
    if folder is None:
        fix = Fix(install_command(DISTRIBUTION))
        raise InputError("mlperf-logging is not installed", fix=fix)
    maker = translation.rules if kind == "rules" else translation.reference_points
    try:
        with catch_warnings():  # its expressions have escapes that Python warns of
            simplefilter("ignore")
            data: dict[str, Any] = maker(folder, ruleset)
    except translation.Untranslatable as error:
        raise InputError(
            f"the installed mlperf-logging has a rule of round {ruleset} that is not understood "
            f"here: {error}",
            hint="pip install --upgrade mlperf-orchestrator, or score with its own tools",
        ) from error
    except (OSError, ValueError, KeyError, AttributeError, ImportError, SyntaxError) as error:
        raise InputError(
            f"the installed mlperf-logging cannot be read for round {ruleset}: "
            f"{type(error).__name__}: {error}",
            hint="pip install --force-reinstall mlperf-logging",
        ) from error
    return data


def _folder() -> Path | None:
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "compliance_checker").is_dir():
            return Path(place)
    return None


def _differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return differing members with their paths, except the package's name."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for name in dict.fromkeys([*ours, *theirs])
            if name not in ("source", "licence")
            for line in _differences(
                ours.get(name), theirs.get(name), f"{where}.{name}".lstrip(".")
            )
        ]
    # as JSON has them: no tuples, and numbers as they were written
    return [] if ours == theirs else [f"{where}: {_short(ours)} here, {_short(theirs)} there"]


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
