"""The oldest Pythons: 3.10 for the command, 3.9 for what nodes run. By what the sources say, and by these Pythons where they are."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from programs import oldest

TOP = Path(__file__).resolve().parents[2]

PACKAGE = TOP / "orchestrator"
NODES = PACKAGE / "onnode"
POSSESSIVE = re.compile(r"[^\\][*+?}]\+|\(\?>")
"""Repeats that give nothing back, and atomic groups: `re` has them since 3.11."""
SHELL = {"onnode/agent/launch.py"}
"""Scripts of bash, in whose arithmetic `i++` is no pattern."""
KEYWORDS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only", "match_args"}, "bisect": {"key"}}
"""Arguments that came with 3.10."""
NAMES = {"pairwise", "bit_count", "aiter", "anext", "TypeAlias", "ParamSpec", "TypeGuard"}
"""Functions and types that came with 3.10."""


def sources(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    minor = 9 if folder == NODES else 10
    for path in sorted(folder.rglob("*.py")):
        yield (
            path.relative_to(PACKAGE).as_posix(),
            ast.parse(path.read_text(), feature_version=(3, minor)),
        )


def too_new(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of what 3.9 lacks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            for word in node.keywords:
                if word.arg in KEYWORDS.get(name, ()):
                    yield node.lineno, f"{name}({word.arg}=)"
        elif isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in NAMES:
                yield node.lineno, name


def test_patterns_are_those_of_310() -> None:
    """Neither the type checker nor the linter reads patterns."""
    wrong = []
    for name, tree in sources(PACKAGE):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                if name not in SHELL and POSSESSIVE.search(text):
                    wrong.append(f"{name}:{node.lineno}")
    assert wrong == []


def test_nodes_need_39_alone() -> None:
    wrong = [
        f"{name}:{line}: {what}" for name, tree in sources(NODES) for line, what in too_new(tree)
    ]
    assert wrong == []
    assert list(too_new(ast.parse("zip(a, b, strict=True)"))) == [(1, "zip(strict=)")]


def test_a_node_with_python_39() -> None:
    """Every module is imported, and the decision that only runs longer than a pulse reach is made."""
    program = """
import importlib, pathlib, sys
top = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(top.parent))
names = [p.relative_to(top.parent).with_suffix("").as_posix().replace("/", ".") for p in sorted(top.rglob("*.py"))]
for name in names:
    if not name.endswith(("__main__", "__init__")) and ".measure." not in name:
        importlib.import_module(name)
from onnode.policy.hang import Pulse, silence
class Given:
    hang_multiple, hang_s, hang_start_s = 3, 600, 1800
pulses = {"n1": Pulse(5, 1, 10, 0), "n2": Pulse(3, 1, 20, 0)}
print(len(names) > 50, silence(pulses, Given).pulse)
"""
    done = subprocess.run(
        [oldest("3.9"), "-I", "-S", "-B", "-c", program, NODES], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("True Pulse(") and "3, " in done.stdout
