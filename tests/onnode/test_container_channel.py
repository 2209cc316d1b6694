"""A container that does not see the folder of its job ends with a word, and never says that it is up."""

from __future__ import annotations

import subprocess
from pathlib import Path

from until import LIMIT_S

from orchestrator.onnode.agent.container import _SHELL


def shell(text: str) -> subprocess.CompletedProcess[str]:
    argv = ["bash", "-c", text, "container"]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
    )


def test_an_engine_with_another_tmp(tmp_path: Path) -> None:
    text = (_SHELL % ("", "")).replace("/orch/", f"{tmp_path}/")
    done = shell(text)
    assert (done.returncode, done.stdout) == (1, "") and "container.channel_dir" in done.stderr
    assert (
        list(tmp_path.iterdir()) == []
    )  # opened for reading and writing it would be a file, and every run would hang
