"""The command line in the process of the tests, which has imported already what a process of its own would import for every call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from processes import captured

from orchestrator.cli import main

OUTER = ("SLURM_", "ORCHESTRATOR_SITE", "HF_TOKEN")
"""How variables begin that a caller's environment may have, and a test's command must not."""


def call(
    arguments: Sequence[str | Path],
    env: Mapping[str, str],
    stdin: str = "",
    *,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Call the command line with `env` over this process's environment; return its exit code and what it printed."""
    argv = [str(word) for word in arguments]
    out, err, given = StringIO(), StringIO(), TextIOWrapper(BytesIO(stdin.encode()))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in [name for name in os.environ if name.startswith(OUTER)]:
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        patch.setattr("sys.stdin", given)
        if cwd is not None:
            patch.chdir(cwd)
        code = main(argv)
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


def program(
    arguments: Sequence[str | Path],
    env: Mapping[str, str],
    *,
    cwd: Path | None = None,
    descriptors: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own, which inherits `descriptors`."""
    argv = [sys.executable, "-m", "orchestrator", *map(str, arguments)]
    return captured(argv, env, cwd=cwd, descriptors=descriptors)
