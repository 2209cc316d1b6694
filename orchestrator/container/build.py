"""Building an image that no registry has, with the engine's command."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.container.image import EngineError
from orchestrator.errors import UsageError


def build(command: Sequence[str], reference: str, tree: Path, dockerfile: str, source: str) -> None:
    """Build `reference` from `dockerfile` in `tree`, the published `source`; engine output goes to
    standard error.

    Raises UsageError for a missing Dockerfile, EngineError if the engine fails.
    """
    file = tree / dockerfile
    if not file.is_file():
        raise UsageError(f"there is no {file}", hint=f"--tree DIR: {source}")
    argv = [*command, "build", "--tag", reference, "--file", str(file), str(tree)]
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    except OSError as error:
        raise EngineError(f"{argv[0]}: {error.strerror}") from error
    if ended.returncode:
        raise EngineError(f"{shlex.join(argv)} exited {ended.returncode}")
