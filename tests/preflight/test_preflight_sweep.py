"""The next preflight of a host removes the folders of killed ones, and no others."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.preflight.bundle import PREFIX, _sweep


def test_only_folders_of_dead_preflights_of_this_host_are_swept(tmp_path: Path) -> None:
    host = os.uname().nodename
    dead = 2**22 + 1  # beyond the largest pid (PID_MAX_LIMIT)
    swept = f"{PREFIX}{host}-{dead}-ab12"
    kept = [
        f"{PREFIX}{host}-{os.getpid()}-ab12",
        f"{PREFIX}{host}-900001-{dead}-ab12",  # of the host `<this one>-900001`
        f"{PREFIX}x{host}-{dead}-ab12",
        f"{PREFIX}{host}-{dead}-ab12.old",
    ]
    for name in (swept, *kept):
        (tmp_path / name).mkdir()
    _sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    _sweep(tmp_path / "nowhere")
