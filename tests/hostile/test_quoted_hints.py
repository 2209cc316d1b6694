"""Commands in messages are copied into a shell: whatever a name says there is one word."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_parts import call
from sources import PACKAGE

from orchestrator.words import quoted

TOP = PACKAGE.parent


@pytest.mark.parametrize(
    "text", ["plain-1.2_x/y", "a b", "MI;touch x;", "$(id)", "`id`", "it's", "", "-rf", "a\nb", "é"]
)
def test_a_word_stays_a_word(text: str) -> None:
    assert shlex.split(f"rm {quoted(text)}") == ["rm", text]
    assert quoted("MI325X_08x08x32") == "MI325X_08x08x32"


def test_a_sets_name_in_a_hint(whole: Path, place: Path) -> None:
    """The line that a person copies runs nothing but itself."""
    root = place / "MI;touch${IFS}pwned;"
    shutil.copytree(whole, root, symlinks=True)
    (root / "set.json").write_text("{")
    answers = [
        call([*words, str(root)])
        for words in (["resume"], ["cancel"], ["status"], ["nodes"], ["logs", "--job"])
    ]
    hints = [
        line.partition("hint: ")[2]
        for answer in answers
        for line in answer.err.splitlines()
        if "hint: " in line and "orchestrator " in line
    ]
    assert any("'" in hint for hint in hints), answers
    for hint in hints:
        command = hint[hint.index("orchestrator ") :]
        subprocess.run(
            ["/bin/bash", "-c", "orchestrator() { :; }; rm() { :; }; " + command],
            cwd=place,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
        )
        assert not (place / "pwned").exists(), hint


def test_the_folder_of_a_bundle(tmp_path: Path) -> None:
    site, bundle = tmp_path / "site.yaml", f"{tmp_path}/my $(bundle)"
    site.write_text(f"log_dir: {tmp_path}\ncontainer: {{engine: none}}\n")
    answer = call(["render", "local_2x2x8", "builtin", "--site", str(site), "-o", bundle])
    starts = [line for line in answer.out.splitlines() if line.startswith("start ")]
    assert list(map(shlex.split, starts)) == [
        ["start", "cd", bundle, "&&", "sbatch", "job.sh"],
        ["start", "bash", f"{bundle}/run_with_docker.sh"],
    ]


def test_an_interrupt_while_the_command_is_imported(tmp_path: Path) -> None:
    (tmp_path / "orchestrator").mkdir()
    (tmp_path / "orchestrator/__init__.py").write_text("raise KeyboardInterrupt\n")
    shutil.copy(TOP / "mlperf_orchestrator.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "import sys, mlperf_orchestrator as m; sys.exit(m.main())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "\n")
