"""What the shell of a container tells as its host name: Python's, else hostname's, else nothing; it never stops there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from until import LIMIT_S

from orchestrator.onnode.agent.container import _TELL_HOST


@pytest.mark.parametrize(
    ("programs", "name"),
    [
        (["python3", "hostname"], "of.python"),
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
        # The host's own name is that of /etc/hosts, which labs of other tests may be changing.
        own = "import socket; socket.getfqdn = lambda: 'of.python'"
        (tmp_path / "python3").write_text(f'#!/bin/sh\nexec /usr/bin/python3 "$1" "{own}\n$2"\n')
        (tmp_path / "python3").chmod(0o755)
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
