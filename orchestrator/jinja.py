"""Jinja templates, compiled once into the user's cache folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.trust import others

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment


def environment(*folders: Path, **options: Any) -> Environment:
    """Return the environment: a missing value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=_compiled(),
        **options,
    )


def _compiled() -> BytecodeCache | None:
    """Return the cache of compiled templates; None without a private folder of the user.

    Templates are code: a writer there would execute code as the user.
    """
    from jinja2 import FileSystemBytecodeCache

    from orchestrator import __version__

    home = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    folder = os.path.join(home, "orchestrator")
    try:
        if os.path.isabs(home):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        if not stat.S_ISDIR(os.lstat(folder).st_mode) or others(folder):
            return None
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None

    class Kept(FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: Any) -> None:
            try:
                super().dump_bytecode(bucket)
            except OSError:  # a full disk: compiled again next time
                pass

    return Kept(folder, f"{__version__}-%s.template")
