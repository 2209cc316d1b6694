"""Where the shipped templates, systems and workloads are: in the checkout's top, or inside the wheel; where a user's files are."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def user_path(text: str) -> Path:
    """Return the path that a user typed. `~` is the home folder; where there is none (no such user, no HOME), it is a name."""
    return Path(os.path.expanduser(text))


def data_dir(kind: str) -> Path:
    """Return the folder of `kind` ("templates", "systems" or "workloads").

    An installed wheel carries them under `orchestrator/_data`; a checkout has them beside the package.
    """
    packed = _PACKAGE / "_data" / kind
    return packed if packed.is_dir() else _PACKAGE.parent / kind
