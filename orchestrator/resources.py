"""Where the shipped templates, systems and workloads are: in the checkout's top, or inside the wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_dir(kind: str) -> Path:
    """Return the folder of `kind` ("templates", "systems" or "workloads").

    An installed wheel carries them under `orchestrator/_data`; a checkout has them beside the package.
    """
    packed = _PACKAGE / "_data" / kind
    return packed if packed.is_dir() else _PACKAGE.parent / kind
