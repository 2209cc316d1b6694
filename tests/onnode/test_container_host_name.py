"""What the shell of a container tells as its host name: Python's, else hostname's, else nothing; it never stops there."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from until import LIMIT_S

from orchestrator.onnode.agent.container import _TELL_HOST


@pytest.mark.parametrize(
    ("programs", "name"),
    [
        (["python3", "hostname"], socket.getfqdn()),
        (["hostname"], "of.hostname"),
        ([], ""),
    ],
)
def test_the_name_comes_from_what_the_image_has(
    tmp_path: Path, programs: list[str], name: str
) -> None:
    for one in ("sh", "timeout"):
        (tmp_path / one).symlink_to(f"/usr/bin/{one}")
    if "python3" in programs:
        (tmp_path / "python3").symlink_to("/usr/bin/python3")
    if "hostname" in programs:
        (tmp_path / "hostname").write_text("#!/bin/sh\n[ $1 = -f ] && echo of.hostname\n")
        (tmp_path / "hostname").chmod(0o755)
    shell = f"{_TELL_HOST}\nread -r rest; echo up $rest"
    told = subprocess.run(
        ["/bin/bash", "-c", shell],
        env={"PATH": str(tmp_path)},
        input="kept\n",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert told.stdout == f"host {name}\nup kept\n"
