"""Figures of the house: size of a rendered bundle, the files of its two programs, lines to read for
one run, how dense the code is.

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

import rules  # noqa: E402
from arguments import arguments, parsers  # noqa: E402
from tics import PACKAGE, count  # noqa: E402

from orchestrator.cli import EVERYWHERE  # noqa: E402
from orchestrator.cli.index import COMMANDS, GROUPS, HIDDEN  # noqa: E402
from orchestrator.model import Site, load_entry  # noqa: E402  (the checkout's own)
from orchestrator.render import render_bundle  # noqa: E402


def bundle(system: str, workload: str) -> dict[str, int]:
    """Return files and lines of a bundle without code of ours in it."""
    with tempfile.TemporaryDirectory() as folder:
        files = render_bundle(load_entry(system, workload, site=Site(log_dir=folder)), nexp=10)
    lines = {name: content.count(b"\n") for name, content in files.items()}
    shell = sum(count for name, count in lines.items() if name.endswith(".sh"))
    python = sum(count for name, count in lines.items() if name.endswith(".py"))
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "lines of bash": shell,
        "lines of Python": python,
    }


def reading_path() -> list[tuple[str, int]]:
    """Return (file, lines) of the table in docs/architecture.md: one run from job.sh to the
    published result."""
    text = (
        (TOP / "docs/architecture.md")
        .read_text()
        .partition("## One run, in reading order")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| `([^`]+)` \| (all|`.*?`) \|", text, re.MULTILINE)
    return [(name, length(TOP / name, re.findall(r"`([\w.]+)`", names))) for name, names in rows]


def length(path: Path, names: list[str]) -> int:
    """Return the lines of a file, or of functions in it; KeyError for one that it does not have."""
    text = path.read_text()
    if not names:
        return text.count("\n")
    lengths = {}
    for node in ast.parse(text).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for function in inside:
            if isinstance(function, ast.FunctionDef):
                lengths[prefix + function.name] = (
                    (function.end_lineno or function.lineno) - function.lineno + 1
                )
    return sum(lengths[name] for name in names)


def circles() -> list[str]:
    """Return the circle of imports in the package, if there is one; for types counts, too."""
    files = {
        ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (TOP / "orchestrator").rglob("*.py")
    }
    del files[
        "orchestrator"
    ]  # the public face imports when asked for; everybody may ask it for the version
    needs = {name: needed(name, path, set(files)) - {name} for name, path in files.items()}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as circle:
        return list(circle.args[1])
    return []


def needed(name: str, path: Path, modules: set[str], *, whole: bool = True) -> set[str]:
    """Return the modules of ours that a file imports; not `whole`: when it is imported itself."""
    names: set[str] = set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    module = ast.parse(path.read_bytes())
    for node in ast.walk(module) if whole else module.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names |= ({f"{origin}.{alias.name}" for alias in node.names} & modules) or (
                {origin} & modules
            )
    return names


def programs() -> dict[str, int]:
    """Return how many files of lib/ each program imports: at once, and with what it imports when
    that is needed."""
    folder = TOP / "orchestrator/onnode"
    files = {
        ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    rows = {}
    for program, first in (("the loop", "loop.job"), ("a node", "agent.agent")):
        for when, whole in (("at once", False), ("in all", True)):
            rows[f"{program}, {when}"] = len(
                reached(f"orchestrator.onnode.{first}", files, whole=whole)
            )
    return rows


def reached(first: str, files: dict[str, Path], *, whole: bool) -> set[str]:
    """Return the modules that one needs, directly or not; `whole`: for its types and inside of
    functions, too."""
    modules, left = set[str](), [first]
    while left:
        name = left.pop()
        if name not in modules:
            modules.add(name)
            left += needed(name, files[name], set(files), whole=whole)
    return modules


def density() -> dict[str, float]:
    """Return how dense the package is: tokens of code for each line that is not blank, docstrings
    and comments included, and words of these for 1,000 tokens."""
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    texts = [line for source in sources for line in source.splitlines() if line.strip()]
    counts = count(PACKAGE)
    return {
        "modules": len(sources),
        "lines": len(texts),
        "tokens of code": counts.tokens,
        "tokens per line": round(counts.tokens / len(texts), 2),
        "characters per line": round(sum(map(len, texts)) / len(texts), 1),
        "lines over 100": sum(len(text) > 100 for text in texts),
        "words of docstrings and comments": counts.words,
        "words per 1,000 tokens": counts.per_token,
    }


def objects() -> dict[str, int]:
    """Return how many classes there are, and how many places break a rule for them."""
    trees = rules.modules()
    return {
        "classes": sum(len(rules.classes(module)) for module in trees.values()),
        f"over {rules.MOST_ATTRIBUTES} attributes": len(list(rules.too_large(trees))),
        "assignments from outside": len(list(rules.assigned_outside(trees))),
        "variables without a noun": len(list(rules.forbidden_names(trees))),
    }


def surface() -> dict[str, int]:
    """Return what a user meets: commands, options, keys of a site, words to learn and to read."""
    every = [(name, action) for name, parser in parsers() for action in arguments(parser)]
    options = [
        word for _, action in every for word in action.option_strings if word.startswith("--")
    ]
    site = (
        (TOP / "docs/reference/keys.md").read_text().partition("## site")[2].partition("\n## ")[0]
    )
    keys = re.findall(r"^\| `([\w.]+)", site, re.MULTILINE)
    glossary = (TOP / "docs/glossary.md").read_text()
    documents = sorted((TOP / "docs").rglob("*.md"))
    return {
        "commands in --help": len(COMMANDS) - len(GROUPS[HIDDEN]),
        "commands in all": len(COMMANDS),
        "options": len({*options, *(option.split()[0] for option in EVERYWHERE)}),
        "places of options": len(options),
        "keys of a site": len({key.partition(".")[0] for key in keys}),
        "terms of the glossary": len(re.findall(r"^\| (?!here|-)", glossary, re.MULTILINE)),
        "words of the README": len((TOP / "README.md").read_text().split()),
        "pages of docs": len(documents),
        "words of docs": sum(len(page.read_text().split()) for page in documents),
    }


def main() -> None:
    system, workload = (
        (sys.argv[1:] + ["MI325X_08x08x32", "flux1"])[:2]
        if len(sys.argv) != 2
        else sys.exit(__doc__)
    )
    print(f"bundle of {system} {workload}:")
    for name, value in bundle(system, workload).items():
        print(f"  {name:16}{value:6}")
    print("files that a program imports:")
    for name, many in programs().items():
        print(f"  {name:20}{many:6}")
    print("the package:")
    for name, value in (density() | objects()).items():
        print(f"  {name:34}{value:>10}")
    print("the surface:")
    for name, number in surface().items():
        print(f"  {name:24}{number:>7}")
    print("one run, in reading order:")
    path = reading_path()
    for file, lines in path:
        print(f"  {lines:5}  {file}")
    print(f"  {sum(lines for _, lines in path):5}  lines in all")
    print(f"circles of imports: {' <- '.join(circles()) or 'none'}")


if __name__ == "__main__":
    main()
