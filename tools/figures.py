"""Figures of the house: size of a rendered bundle, lines to read for one run, circles of imports.

usage:  python tools/figures.py [SYSTEM WORKLOAD]
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from orchestrator.model import Site, load_entry  # noqa: E402  (the checkout's own)
from orchestrator.render import render_bundle  # noqa: E402


def bundle(system: str, workload: str) -> dict[str, int]:
    """Return files and lines of a bundle without code of ours in it."""
    with tempfile.TemporaryDirectory() as folder:
        files = render_bundle(load_entry(system, workload, site=Site(log_dir=folder)), nexp=10)
    lines = {name: content.count(b"\n") for name, content in files.items()}
    shell = sum(count for name, count in lines.items() if name.endswith(".sh"))
    python = sum(count for name, count in lines.items() if name.endswith(".py"))
    return {"files": len(files), "lines": sum(lines.values()), "lines of bash": shell, "lines of Python": python}


def reading_path() -> list[tuple[str, int]]:
    """Return (file, lines) of the table in docs/architecture.md: one run from job.sh to the published result."""
    text = (TOP / "docs/architecture.md").read_text().partition("## One run, in reading order")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (all|`.*?`) \|", text, re.MULTILINE)
    return [(name, length(TOP / name, re.findall(r"`([\w.]+)`", names))) for name, names in rows]


def length(path: Path, names: list[str]) -> int:
    """Return the lines of a file, or of functions in it; KeyError for one that it does not have."""
    text = path.read_text()
    if not names:
        return text.count("\n")
    found = {}
    for node in ast.parse(text).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in inside:
            if isinstance(one, ast.FunctionDef):
                found[prefix + one.name] = (one.end_lineno or one.lineno) - one.lineno + 1
    return sum(found[name] for name in names)


def circles() -> list[str]:
    """Return the circle of imports in the package, if there is one; for types counts, too."""
    files = {
        ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (TOP / "orchestrator").rglob("*.py")
    }
    del files["orchestrator"]  # the public face imports when asked for; everybody may ask it for the version
    needs = {name: needed(name, path, set(files)) - {name} for name, path in files.items()}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as circle:
        return list(circle.args[1])
    return []


def needed(name: str, path: Path, modules: set[str]) -> set[str]:
    """Return the modules of ours that a file imports."""
    found: set[str] = set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found |= ({f"{origin}.{alias.name}" for alias in node.names} & modules) or ({origin} & modules)
    return found


def main() -> None:
    system, workload = (sys.argv[1:] + ["MI325X_08x08x32", "flux1"])[:2] if len(sys.argv) != 2 else sys.exit(__doc__)
    print(f"bundle of {system} {workload}:")
    for name, value in bundle(system, workload).items():
        print(f"  {name:16}{value:6}")
    print("one run, in reading order:")
    path = reading_path()
    for file, lines in path:
        print(f"  {lines:5}  {file}")
    print(f"  {sum(lines for _, lines in path):5}  lines in all")
    print(f"circles of imports: {' <- '.join(circles()) or 'none'}")


if __name__ == "__main__":
    main()
