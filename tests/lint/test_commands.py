"""Every value in a command of a message is one word of a shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sources import PACKAGE, tree

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
    "entry": "quoted before",
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
