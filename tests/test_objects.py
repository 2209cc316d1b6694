"""What a class of onnode may hold, and who may change it: an object that everybody changes is nobody's idea."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from sources import tree

import orchestrator

ONNODE = Path(orchestrator.__file__).resolve().parent / "onnode"
MODULES = sorted(ONNODE.rglob("*.py"))
MOST = 15


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a statement assigns."""
    given = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        for one in given:
            yield from (
                found
                for found in ast.walk(one)
                if isinstance(found, ast.Attribute) and is_stored(found)
            )


def is_stored(found: ast.Attribute) -> bool:
    return isinstance(found.ctx, ast.Store)


def owner(found: ast.Attribute) -> str:
    return found.value.id if isinstance(found.value, ast.Name) else ""


def own(module: ast.AST) -> set[str]:
    """The attributes that the classes of a module have."""
    fields = {
        node.target.id
        for one in ast.walk(module)
        if isinstance(one, ast.ClassDef)
        for node in one.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return fields | {
        found.attr
        for node in ast.walk(module)
        for found in targets(node)
        if owner(found) in ("self", "cls")
    }


def test_no_class_has_more_attributes_than_a_reader_can_hold() -> None:
    found = {}
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                names = {
                    one.attr
                    for inner in ast.walk(node)
                    for one in targets(inner)
                    if owner(one) == "self"
                }
                found[f"{path.relative_to(ONNODE)}: {node.name}"] = len(names)
    assert len(found) > 50
    assert {name: count for name, count in found.items() if count > MOST} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ONNODE).as_posix())
def test_no_attribute_is_assigned_from_outside_its_module(path: Path) -> None:
    module = tree(path)
    mine = own(module)
    wrong = [
        f"{found.lineno}: {ast.unparse(found)}"
        for node in ast.walk(module)
        for found in targets(node)
        if owner(found) not in ("self", "cls", "sys") and found.attr not in mine
    ]
    assert wrong == []
