"""Scripts and folders that a partly known path can mean."""

from __future__ import annotations

import fnmatch
import posixpath
import re

from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.trace import UNKNOWN, Place, Undecided, shown

MOST_CHOICES = 20
"""Scripts that a partly known name can mean: more are no help."""
LEAST_KNOWN = 8


def interpreter(walk: Walk, path: str) -> str:
    """Return `shell` or `python` for a script, by its first line; else ""."""
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
    """Return the scripts that a partly known path can mean; none if they are too many."""
    if len(path.removeprefix(shell.cwd).strip("/" + UNKNOWN)) < LEAST_KNOWN:
        return []
    pattern = path.replace(UNKNOWN, "*")
    fitting = [
        one.path
        for one in walk.tree
        if one.content and _fits(one.path, pattern) and interpreter(walk, one.path) == "shell"
    ]
    return sorted(fitting) if len(fitting) <= MOST_CHOICES else []


def undecided_scripts(walk: Walk, how: str, path: str, fitting: list[str], place: Place) -> None:
    names = ", ".join(map(posixpath.basename, fitting))
    why = f"which script is {how}: {shown(path)}{names and f', perhaps {names}'}"
    walk.trace.undecided.append(Undecided(why, place))


def folder_by_document(walk: Walk, shell: ShellState, pattern: str) -> str | None:
    """Return the folder that a partly known path means, if a document of the run names it."""
    fitting = {
        posixpath.dirname(one.path)
        for one in walk.tree
        if _fits(posixpath.dirname(one.path), pattern.replace(UNKNOWN, "*"))
    }
    named = [one for one in fitting if is_named(walk, shell, f"{one}/", f"{pattern}/")]
    return named[0] if len(named) == 1 else None


def is_named(walk: Walk, shell: ShellState, path: str, pattern: str) -> bool:
    """Return whether the unknown folder of a path is a value in a YAML document of the run."""
    documents = [value for value in shell.variables.values() if isinstance(value, str)]
    texts = [walk.tree.text(one) or "" for one in documents if one.endswith((".yaml", ".yml"))]
    values = {match for text in texts for match in re.findall(r":\s*([\w.-]+)", text)}
    at = [number for number, part in enumerate(pattern.split("/")[:-1]) if UNKNOWN in part]
    return bool(at) and path.split("/")[at[0]] in values


def _fits(path: str, pattern: str) -> bool:
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
