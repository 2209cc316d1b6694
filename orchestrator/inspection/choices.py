"""Scripts and folders that a partly known path can mean."""

from __future__ import annotations

import fnmatch
import posixpath
import re

from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.trace import UNKNOWN, Place, Undecided, shown

MOST_CHOICES = 20
"""Scripts for a partly known name: more are no help."""
LEAST_KNOWN = 8


def interpreter(walk: Walk, path: str) -> str:
    """Return `shell` or `python` by a script's first line, else ""."""
    text = walk.tree.text(path)
    if text is None:
        return ""
    first = text.partition("\n")[0]
    if not first.startswith("#!"):
        return "shell" if path.endswith(".sh") else ""
    if "python" in first:
        return "python"
    return "shell" if re.search(r"\b(ba|da)?sh\b", first) else ""


def scripts_of(walk: Walk, shell: ShellState, path: str) -> list[str]:
    """Return scripts for a partly known path; [] if too little is known."""
    if len(path.removeprefix(shell.cwd).strip("/" + UNKNOWN)) < LEAST_KNOWN:
        return []
    pattern = path.replace(UNKNOWN, "*")
    return sorted(
        file.path
        for file in walk.tree
        if file.content and _fits(file.path, pattern) and interpreter(walk, file.path) == "shell"
    )


def undecided_scripts(
    walk: Walk, how: str, path: str, fitting: list[str], place: Place
) -> list[str]:
    """Record the choice; return scripts to walk, [] if too many."""
    few = fitting if len(fitting) <= MOST_CHOICES else []
    names = ", ".join(map(posixpath.basename, few))
    why = f"which script is {how}: {shown(path)}{names and f', perhaps {names}'}"
    walk.trace.undecided.append(Undecided(why, place))
    return few


def folder_by_document(walk: Walk, shell: ShellState, pattern: str) -> str | None:
    """Return the only folder of a pattern that a document of the run names."""
    folders = {posixpath.dirname(file.path) for file in walk.tree}
    fitting = [f"{folder}/" for folder in folders if _fits(folder, pattern.replace(UNKNOWN, "*"))]
    named = by_document(walk, shell, fitting, f"{pattern}/")
    return named[0].rstrip("/") if len(named) == 1 else None


def by_document(walk: Walk, shell: ShellState, paths: list[str], pattern: str) -> list[str]:
    """Return paths whose unknown folder is a value in a document of the run."""
    documents = [value for value in shell.variables.by_name.values() if isinstance(value, str)]
    texts = [
        walk.tree.text(document) or ""
        for document in documents
        if document.endswith((".yaml", ".yml"))
    ]
    values = {match for text in texts for match in re.findall(r":\s*([\w.-]+)", text)}
    at = [number for number, part in enumerate(pattern.split("/")[:-1]) if UNKNOWN in part]
    return [path for path in paths if at and path.split("/")[at[0]] in values]


def _fits(path: str, pattern: str) -> bool:
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
