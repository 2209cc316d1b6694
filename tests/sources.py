"""The sources of the package: as syntax trees, each read once for all tests of a process, and where any user can read them."""

from __future__ import annotations

import ast
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "orchestrator"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file's tree."""
    return list(ast.walk(tree(path)))


@contextmanager
def package_for_all() -> Iterator[Path]:
    """Have a copy of the package that any user can read: the checkout may be in a private folder, such as /root.

    The value is its parent.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(PACKAGE, place / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (place, *place.rglob("*")):
            path.chmod(0o755)
        yield place
