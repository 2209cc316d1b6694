"""The helpers that find a test's processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from processes import programs_of
from until import until


def test_a_fork_that_has_no_program_of_its_own_yet_is_no_program(tmp_path: Path) -> None:
    """A subshell of bash stays so for as long as it lives; others do for a moment."""
    with subprocess.Popen(
        ["bash", "-c", "(read -r; :); :", tmp_path], stdin=subprocess.PIPE
    ) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        until(children.read_text)
        assert list(programs_of(tmp_path)) == [parent.pid]
        parent.communicate()
