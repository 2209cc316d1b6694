"""A config's environment; values computed at each start stay computed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from orchestrator.errors import InputError, UsageError
from orchestrator.importing.execution import executed
from orchestrator.importing.shell import MARK, RANDOM, STAMP, NoParser, NotPlain, read_config
from orchestrator.inspection.trace import whole_number
from orchestrator.model.values import EnvValue, Minutes, Text, Unique
from orchestrator.onnode.kernel.regular import read_bytes

MOST_FILES = 500
LARGEST = 1_000_000
OF_A_RUN = {"MASTER_ADDR": "master.invalid"}
"""Given to every run; multi-node configs end without it."""


@dataclass(frozen=True)
class ConfigEnvironment:
    """`chance`: variables that differ at every start. `run`: executed, not only read."""

    name: str
    path: str
    env: dict[str, EnvValue]
    chance: tuple[str, ...]
    run: bool


def evaluate(path: Path, *, execute: bool = False) -> ConfigEnvironment:
    """Read plain assignments; execute other configs if `execute`.

    Raises UsageError without it, InputError for an unusable config.
    """
    files = _files(path)
    try:
        return _evaluation(
            path, lambda nexp: read_config(path.name, files, OF_A_RUN, nexp), run=False
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
    return _evaluation(
        path, lambda nexp: executed(path.name, files, {**OF_A_RUN, "NEXP": nexp}), run=True
    )


def _files(path: Path) -> dict[str, bytes]:
    try:
        content = read_bytes(path, LARGEST)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    files = {}
    for entry in sorted(os.scandir(path.parent), key=lambda entry: entry.name)[:MOST_FILES]:
        if entry.name.endswith(".sh") and entry.is_file():
            try:
                files[entry.name] = read_bytes(Path(entry.path), LARGEST)
            except OSError:
                continue  # reported as missing if the config sources it
    return {**files, path.name: content}


def _evaluation(
    path: Path, run_of: Callable[[str], dict[str, str]], *, run: bool
) -> ConfigEnvironment:
    """Evaluate with 1, again 1, 2 and 3 runs: differences show computed values."""
    first, again = run_of("1"), run_of("1")
    two, three = run_of("2"), run_of("3")
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
    return ConfigEnvironment(path.name, str(path), env, tuple(chance), run)


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
