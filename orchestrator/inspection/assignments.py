"""Assignments of variables, array elements and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.inspection import expansion
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.syntax import text_of
from orchestrator.inspection.trace import Assignment, bounded, whole_number

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
    if value_node is not None and value_node.type == "array":
        keyed = _keyed(walk, value_node, shell)
        before = shell.variables.get(name)
        if keyed:
            mine = {**before, **keyed} if adds and isinstance(before, dict) else keyed
            shell.variables.set(name, mine)
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
    if adds:
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
    number = whole_number(index)
    if isinstance(before, list) and number is not None and 0 <= number <= len(before):
        items = list(before)
        items[number : number + 1] = [value]
        shell.variables.set(name, items)
        return
    if isinstance(before, list) and not before and number is None:
        before = {}
    items_by_key = dict(before) if isinstance(before, dict) else {}
    items_by_key[index] = items_by_key.get(index, "") + value if adds else value
    shell.variables.set(name, items_by_key)
