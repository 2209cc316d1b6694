"""Commands in messages are copied into a shell: whatever a name says there is one word."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_parts import call
from sources import PACKAGE, tree

from orchestrator.words import quoted

TOP = PACKAGE.parent
PROGRAMS = (
    "cat|cd|chgrp|chmod|chown|cp|df|docker|du|export|git|install|kill|ls|mkdir|mv|podman|rm|sbatch|"
    "scancel|scontrol|squeue|ssh|touch|unset"
)
COMMAND = re.compile(
    rf"(?:^|[\s`:;,(])(?:orchestrator [a-z]+\b[^.;\n`]*|(?:sudo )?(?:{PROGRAMS})\b[^.;\n`]*?) ?=?$"
)
"""A text that ends within a command."""
SAFE = re.compile(r"(?:shlex\.)?(?:quoted|quote|join)\(|','\.join\(map\(quote")
REASONS = {
    "fix if report.wanted else keep": "words of ours",
    "start_set('slurm')": "words of ours",
    "error": "a reason behind the command's name",
    "error.strerror": "a reason behind the command's name",
    "done.returncode": "a number behind the command's name",
    "names or 'no answer within 60 s'": "an answer behind the command's name",
    "node.name": "the address of a node",
    "' '.join(ours)": "quoted before",
    "image": "quoted before",
    "names": "quoted before",
    "folder": "quoted before",
    "INSIDE": "a constant",
    "variable": "a name that the model checks",
    "name": "a name that was checked as a variable's",
    "name(key)": "the filter of scripts",
    "env_value(value)": "the filter of scripts",
    "text": "the script itself",
    "step.secret": "a name that the model checks",
    "where": "a sentence",
    "job": "a place in a text of slurm_states.py, which quotes what it fills in",
    "packaged('rules', ROUNDS[-1])['source'].replace(' ', '==')": "data of ours",
    "plan.build.source": "a remark behind the command",
}
"""Values behind a command that are no word of it, or cannot be anybody's."""


def bare() -> Iterator[tuple[str, str]]:
    """Every value that stands bare in a command of a message: its place, its source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in ("simulation", "generated"):
            continue
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.JoinedStr):
                continue
            text = ""
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    source = ast.unparse(part.value)
                    if COMMAND.search(text) and not SAFE.match(source):
                        yield f"{path.relative_to(PACKAGE)}:{node.lineno}", source
                    text += "X"
                else:
                    text += str(getattr(part, "value", ""))


def test_every_value_in_a_command_is_quoted() -> None:
    found = list(bare())
    assert [one for one in found if one[1] not in REASONS] == [], "orchestrator.words.quoted()"
    assert set(REASONS) - {source for _, source in found} == set(), "reasons not needed any more"


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
