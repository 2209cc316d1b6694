"""Assignments of variables, array elements and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.inspection import expansion
from orchestrator.inspection.conditions import evaluated
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.syntax import text_of
from orchestrator.inspection.trace import UNKNOWN, Assignment, bounded

if TYPE_CHECKING:
    from tree_sitter import Node


def name_of(assignment: Node) -> str:
    """Return the variable's name, without an index."""
    name = assignment.child_by_field_name("name")
    return text_of(name).partition("[")[0] if name else ""


def assign(walk: Walk, node: Node, shell: ShellState) -> str:
    """Make a `variable_assignment`; return the variable's name."""
    name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name_node is None:
        return ""
    adds = any(child.type == "+=" for child in node.children)
    name = text_of(name_node).partition("[")[0]
    if "allexport" in shell.options:
        shell.variables.export(name)
    if value_node is not None and value_node.type == "array":
        keyed = _keyed(walk, value_node, shell)
        before = shell.variables.get(name)
        if keyed and isinstance(before, dict):
            shell.variables.set(name, {**before, **keyed} if adds else keyed)
            return name
        if keyed:
            in_order = list(keyed) == [str(number) for number in range(len(keyed))]
            shell.variables.set(name, list(keyed.values()) if in_order and not adds else [UNKNOWN])
            return name
        items = [
            word
            for item in value_node.named_children
            for word in expansion.fields(walk, shell, item)
        ]
        earlier = (
            [before] if isinstance(before, str) else before if isinstance(before, list) else []
        )
        if not isinstance(before, dict) or items:
            shell.variables.set(name, [*earlier, *items] if adds else items)
        return name
    value = expansion.text(walk, shell, value_node) if value_node is not None else ""
    if name_node.type == "subscript":
        _assign_element(walk, name_node, name, value, shell, adds=adds)
        return name
    if name in shell.variables.integers:
        value = f"{shell.variables.scalar(name) or 0}+({value})" if adds else value or "0"
        number = evaluated(walk, shell, value)
        value = UNKNOWN if number is None else str(number)
    elif adds and isinstance(shell.variables.get(name), list):
        value = UNKNOWN  # of the first element alone
    elif adds:
        value = bounded((shell.variables.scalar(name) or "") + value)
    forced = value_node is None or name not in text_of(value_node)
    place = walk.place(node, shell)
    walk.trace.assignments.append(Assignment(name, value, forced, place))
    shell.variables.set(name, value)
    return name


def _keyed(walk: Walk, array: Node, shell: ShellState) -> dict[str, str]:
    """Return the elements of ([KEY]=VALUE ...); {} without keys."""
    items = [item for item in array.named_children if text_of(item).startswith("[")]
    pairs = (expansion.text(walk, shell, item)[1:].partition("]=") for item in items)
    return {key: value for key, equals, value in pairs if equals}


def _assign_element(
    walk: Walk, node: Node, name: str, value: str, shell: ShellState, *, adds: bool
) -> None:
    index_node = node.child_by_field_name("index")
    index = expansion.text(walk, shell, index_node) if index_node is not None else ""
    before = shell.variables.get(name)
    if isinstance(before, dict):
        items_by_key = dict(before)
        items_by_key[index] = items_by_key.get(index, "") + value if adds else value
        shell.variables.set(name, items_by_key)
        return
    items = [before] if isinstance(before, str) else list(before or ())
    number = evaluated(walk, shell, index)
    if number is not None and number < 0:
        number += len(items)
    if number is None or not 0 <= number <= len(items):
        shell.variables.set(name, UNKNOWN if not items else [UNKNOWN])
        return
    if adds and number < len(items):
        value = bounded(items[number] + value)
    items[number : number + 1] = [value]
    shell.variables.set(name, items)
