"""Report an unexpected exception: a sentence, and a file with all details to send."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path

from orchestrator import __version__
from orchestrator.cli.debug import without_login, without_values
from orchestrator.trust import others
from orchestrator.words import local_clock

LONGEST = 200_000
"""Characters of a traceback in the file."""


def explained(args: list[str], error: Exception) -> tuple[str, str]:
    """Write the file; return message and hint."""
    text = without_login(" ".join(f"{type(error).__name__}: {error}".split())[:300])
    try:
        path = _write(args, error)
    except OSError as problem:
        return (
            f"internal error: {text}",
            f"its traceback could not be kept ({problem.strerror or problem})",
        )
    return (
        f"internal error: {text}",
        f"send {path} to the maintainers of this program; it has the traceback",
    )


def _write(args: list[str], error: Exception) -> Path:
    name = f"defect-{local_clock('%Y%m%d-%H%M%S')}-{os.getpid()}-{os.urandom(2).hex()}.txt"
    system = " ".join(os.uname()[::2])
    lines = [
        f"orchestrator {__version__}, Python {sys.version.split()[0]}, {system}",
        f"orchestrator {' '.join(map(without_values, args))}",
        "",
        without_login("".join(traceback.format_exception(error))[-LONGEST:]),
    ]
    text = "\n".join(lines)
    path = _folder() / name
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path


def _folder() -> Path:
    """Return the user's state folder (XDG), else a new private temporary folder."""
    home = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    folder = Path(home) / "orchestrator"
    if os.path.isabs(home):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK) and not others(folder):
                return folder
        except OSError:
            pass
    return Path(tempfile.mkdtemp(prefix="orchestrator-"))
