"""The verdict of mlperf-logging's package checker on a package.

Its exit status is always 0, so its output is parsed. It writes scaling.json into the tree and a log
into the current directory, so it gets a temporary copy. (`result_summarizer.compute_score` of the
pinned version ends with a traceback on every folder.)
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from orchestrator.errors import Fix, InputError
from orchestrator.installation import install_command
from orchestrator.submission.package import write_tree
from orchestrator.words import quoted

PINNED = "4.1.68"
LIMIT_S = 600.0
_GOOD = "PACKAGE CHECKER FOUND NO ERRORS"
_BAD = "PACKAGE CHECKER FOUND ERRORS"
NEEDED = f"mlperf-logging=={PINNED}"


@dataclass(frozen=True, slots=True)
class Word:
    """`errors` and `warnings` are lines of `output`."""

    passed: bool
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    version: str
    output: str


def installed_version() -> str:
    """Return the version of mlperf-logging. Raises InputError without it."""
    try:
        return metadata.version("mlperf-logging")
    except metadata.PackageNotFoundError as error:
        raise InputError(
            "--verify needs mlperf-logging, and this Python does not have it",
            hint="install the checker whose rules equal the built-in rules",
            fix=Fix(install_command(NEEDED)),
        ) from error


def verify(
    files: Mapping[str, bytes], ruleset: str, benchmarks: Sequence[str], *, limit_s: float = LIMIT_S
) -> Word:
    """Check a copy of the tree. Raises InputError if the checker cannot."""
    version = installed_version()
    with tempfile.TemporaryDirectory(prefix="orchestrator-verify-") as place:
        tree, stand = Path(place) / "package", Path(place) / "stand"
        stand.mkdir()
        write_tree(files, tree)
        output = _run(_argv(str(tree), ruleset), stand, limit_s)
    return _read(output.replace(f"{place}/package/", ""), benchmarks, version)


def _argv(tree: str, ruleset: str) -> list[str]:
    return [sys.executable, "-m", "mlperf_logging.package_checker", tree, "training", ruleset]


def check_command(directory: Path, ruleset: str) -> str:
    """Return the command that checks a copy of a written package."""
    copy = f'd=$(mktemp -d) && cp -r {quoted(os.path.abspath(directory))} "$d/package" && cd "$d"'
    return f'({copy} && {shlex.join(_argv("package", ruleset))}; rm -rf "$d")'


def _run(argv: list[str], stand: Path, limit_s: float) -> str:
    # The child finds what `installed_version` finds, also in relative folders.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    try:
        answer = subprocess.run(
            argv,
            cwd=stand,
            env=environment,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"the package checker did not end within {limit_s:.0f} s") from error
    except OSError as error:
        raise InputError(f"the package checker cannot be started: {error}") from error
    return answer.stdout


def _read(output: str, benchmarks: Sequence[str], version: str) -> Word:
    lines = output.splitlines()
    errors = [
        line.removeprefix("ERROR - ").strip() for line in lines if line.startswith("ERROR - ")
    ]
    warnings = [
        line.removeprefix("WARNING - ").strip() for line in lines if line.startswith("WARNING - ")
    ]
    if _GOOD not in output and _BAD not in output:
        last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
        errors.append(f"the checker ended without a verdict: {last.strip()}")
    # "no errors" is also printed over a skipped folder.
    errors += [
        f"the checker skipped {benchmark}"
        for benchmark in benchmarks
        if f"Skipping benchmark: {benchmark}" in output
    ]
    return Word(
        _GOOD in output and not errors,
        tuple(errors),
        tuple(dict.fromkeys(warnings)),
        version,
        output,
    )
