"""A config's environment; values computed at each start stay computed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from orchestrator.errors import InputError, UsageError
from orchestrator.importing.execution import executed
from orchestrator.importing.shell import (
    MARK,
    RANDOM,
    STAMP,
    NoParser,
    NotPlain,
    line_end_problem,
    read_config,
)
from orchestrator.inspection.trace import whole_number
from orchestrator.model.values import EnvValue, Minutes, Text, Unique
from orchestrator.onnode.kernel.regular import read_bytes
from orchestrator.words import quoted

MOST_FILES = 500
LARGEST = 1_000_000
CLOCK = 13_571_357_135_713
"""The first execution's time."""
TICK = 11_111_111_111_123
"""A prime, so that no remainder of a time is the same in the next execution."""
OF_A_RUN = {"MASTER_ADDR": "master.invalid"}
"""Given to every run; multi-node configs end without it."""


@dataclass(frozen=True)
class ConfigEnvironment:
    """`chance`: variables that differ at every start. `run`: executed, not only read. `errors`: the
    start of its standard error."""

    name: str
    path: str
    env: dict[str, EnvValue]
    chance: tuple[str, ...]
    run: bool
    errors: str = ""


def evaluate(path: Path, *, execute: bool = False) -> ConfigEnvironment:
    """Read plain assignments; execute other configs if `execute`.

    Raises UsageError without it, InputError for an unusable config.
    """
    files = _files(path)
    if problem := line_end_problem(path.name, files.get(path.name, b"").decode("latin-1")):
        raise InputError(problem[0], hint=problem[1])
    try:
        return _evaluation(
            path,
            lambda nexp, _: (read_config(path.name, files, OF_A_RUN, nexp), ""),
            run=False,
        )
    except (NotPlain, NoParser) as error:
        why = (
            f"{error}: not a plain assignment"
            if isinstance(error, NotPlain)
            else "the shell parser is not installed (pip install tree-sitter tree-sitter-bash)"
        )
        if not execute:
            raise UsageError(
                f"{path.name} cannot be read without executing it: {why}",
                hint="a config is code of its author; if you trust it, --execute sources it in an "
                "empty shell of yours",
            ) from error
    scripts = {name: _refusing(name, files) or content for name, content in files.items()}
    return _evaluation(
        path,
        lambda nexp, clock: executed(path.name, scripts, {**OF_A_RUN, "NEXP": nexp}, clock),
        run=True,
    )


def _refusing(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return a script that fails in place of one with CR LF; b"" for others."""
    problem = line_end_problem(name, files[name].decode("latin-1"))
    return f"echo {quoted('; '.join(problem))} >&2; exit 2\n".encode() if problem else b""


def _files(path: Path) -> dict[str, bytes]:
    try:
        content = read_bytes(path, LARGEST)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    files = {}
    names = sorted(entry.name for entry in os.scandir(path.parent) if entry.name.endswith(".sh"))
    for name in names[:MOST_FILES]:
        try:
            files[name] = read_bytes(path.parent / name, LARGEST)
        except OSError:
            continue  # reported as missing if the config sources it
    return {**files, path.name: content}


def _evaluation(
    path: Path, run_of: Callable[[str, int], tuple[dict[str, str], str]], *, run: bool
) -> ConfigEnvironment:
    """Evaluate with 1, again 1, 2 and 3 runs, at different times: differences show computed
    values."""
    results = [run_of(nexp, CLOCK + at * TICK) for at, nexp in enumerate("1123")]
    first, again, two, three = (result for result, _ in results)
    env: dict[str, EnvValue] = {}
    chance = []
    for name, text in first.items():
        if name == "NEXP" or (name in OF_A_RUN and text == OF_A_RUN[name]):
            continue
        value = _value(text, again.get(name, ""), two.get(name, ""), three.get(name, ""))
        if value is None:
            chance.append(name)
        elif MARK in str(value):
            raise InputError(f"{path.name}: {name} has a time stamp in the middle of its value")
        else:
            env[name] = value
    if not env:
        raise InputError(
            f"{path.name} exports no variable", hint="a published config is called config_*.sh"
        )
    errors = next(filter(None, (text for _, text in results)), "")
    return ConfigEnvironment(path.name, str(path), env, tuple(chance), run, errors)


def _value(first: str, again: str, two: str, three: str) -> EnvValue | None:
    if RANDOM in first:
        return None
    if first.endswith(STAMP):
        return Unique(first.removesuffix(STAMP))
    if first != again:
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, again, strict=False))
        prefix = re.sub(r"[0-9]+$", "", "".join(character for character, _ in pairs))
        rests = [text.removeprefix(prefix) for text in (first, again)]
        is_stamp = all(rest.isdecimal() and len(rest) >= 10 for rest in rests)
        return Unique(prefix) if is_stamp else None
    numbers = [whole_number(text) for text in (first, two, three)]
    match numbers:
        case [int(single), int(double), int(triple)] if first != two:
            per_run = double - single
            fixed = single - per_run
            if fixed >= 0 and per_run >= 0 and triple == fixed + 3 * per_run:
                return Minutes(fixed, per_run)
    return Text(first)
