"""One meaning per name: who finds a class by its name finds the one that is meant."""

from __future__ import annotations

import ast
from pathlib import Path

from sources import tree

import orchestrator

PACKAGE = Path(orchestrator.__file__).resolve().parent


def test_every_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(
                    f"{path.relative_to(PACKAGE)}:{node.lineno}"
                )
    assert len(places) > 150
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
