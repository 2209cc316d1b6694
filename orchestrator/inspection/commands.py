"""Commands of a script: assignments, calls, pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.inspection import builtins, expansion, programs
from orchestrator.inspection.assignments import assign
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.redirections import redirect_of, redirected
from orchestrator.inspection.state import LOG, Function, Return, ShellState
from orchestrator.inspection.syntax import text_of
from orchestrator.inspection.trace import UNKNOWN, Assignment, lines_of

if TYPE_CHECKING:
    from tree_sitter import Node


def _variable_assignments(walk: Walk, node: Node, shell: ShellState) -> None:
    for child in node.named_children:
        _variable_assignment(walk, child, shell)


def _variable_assignment(walk: Walk, node: Node, shell: ShellState) -> None:
    substitutes = "command_substitution" in {one.type for one in _below(node)}
    assign(walk, node, shell)
    if not substitutes:
        shell.status = 0
    walk.failed(shell)


def _declaration_command(walk: Walk, node: Node, shell: ShellState) -> None:
    builtins.declare(walk, node, shell)


def _unset_command(walk: Walk, node: Node, shell: ShellState) -> None:
    for child in node.named_children:
        name = expansion.text(walk, shell, child)
        base, _, key = name.partition("[")
        value = shell.variables.get(base)
        if key and isinstance(value, dict):
            shell.variables[base] = {k: v for k, v in value.items() if k != key.rstrip("]")}
        elif not key:
            place = walk.place(node, shell)
            walk.trace.assignments.append(Assignment(name, "", True, place))
            shell.variables.pop(name, None)
            shell.exported.discard(name)
    shell.status = 0


def _command(walk: Walk, node: Node, shell: ShellState) -> None:
    name_node = node.child_by_field_name("name")
    assignments = [one for one in node.named_children if one.type == "variable_assignment"]
    if name_node is not None and assignments and _are_apart(assignments[-1], name_node):
        for one in assignments:
            _variable_assignment(walk, one, shell)
        assignments = []
    words = expansion.fields(walk, shell, name_node) if name_node is not None else []
    for child in node.children_by_field_name("argument"):
        words += expansion.fields(walk, shell, child)
    target = shell
    if assignments and words:
        target = shell.copy()
    for one in assignments:
        target.exported.add(assign(walk, one, target))
    redirects = [one for one in node.named_children if one.type.endswith("_redirect")]
    with redirected(walk, redirects, target):
        if words:
            _call(walk, words, node, target)
    shell.status = target.status
    if target is not shell and words and words[0] in builtins.CHANGING:
        shell.variables, shell.cwd, shell.stdin = target.variables, target.cwd, target.stdin
    walk.failed(shell)


def _call(walk: Walk, words: list[str], node: Node, shell: ShellState) -> None:
    name = words[0]
    if name in shell.functions:
        _function(walk, shell.functions[name], words[1:], shell)
    elif name in builtins.BUILTINS:
        shell.status = builtins.BUILTINS[name](walk, shell, words, node)
    else:
        shell.status = programs.run(walk, shell, words, walk.place(node, shell))
    shell.variables["PIPESTATUS"] = [_text(shell.status)]


def _function(walk: Walk, function: Function, arguments: list[str], shell: ShellState) -> None:
    positional, source = shell.positional, shell.source
    shell.positional, shell.source = arguments, function.file
    try:
        with walk.nested() as fits:
            if fits:
                walk.statement(function.body, shell)
    except Return as end:
        shell.status = end.status
    finally:
        shell.positional, shell.source = positional, source


def pipeline(walk: Walk, node: Node, shell: ShellState, redirects: Sequence[Node] = ()) -> None:
    """Walk a pipeline. `redirects` belong to its last stage: the grammar gives them to all."""
    stages = node.named_children
    with_errors = {
        at
        for at, stage in enumerate(stages)
        if stage.next_sibling is not None and stage.next_sibling.type == "|&"
    }
    steps: list[Callable[[ShellState], None]] = [
        partial(walk.statement, stage) for stage in stages[:-1]
    ]
    steps.append(partial(redirect_of, walk, stages[-1], redirects))
    texts = [text_of(one) for one in stages]
    texts[-1] = " ".join([texts[-1], *map(text_of, redirects)])
    piped(walk, steps, texts, with_errors, shell)


def piped(
    walk: Walk,
    steps: Sequence[Callable[[ShellState], None]],
    texts: Sequence[str],
    with_errors: set[int],
    shell: ShellState,
) -> None:
    """Walk the stages; those `with_errors` send standard error along."""
    statuses: list[int | None] = []
    text: list[str] | None = None
    for at, step in enumerate(steps):
        last = at == len(steps) - 1
        inner = shell.subshell()
        inner.stdin = text if at else inner.stdin
        if not last:
            inner.captured = []
            rest = " | ".join(texts[at + 1 :])
            onward = f">{shell.out}" if shell.out.startswith("/") else shell.out.removeprefix(LOG)
            inner.out = f"| {rest} {onward}".rstrip()
            if at in with_errors:
                inner.err = inner.out
        with walk.guard():
            statuses.append(walk.process(inner, partial(step, inner)))
        if not last:
            output = "".join(inner.captured or [])
            text = lines_of(output)
    shell.variables["PIPESTATUS"] = [_text(one) for one in statuses]
    shell.status = _of_pipe(statuses, "pipefail" in shell.options)
    walk.failed(shell)


def _are_apart(assignment: Node, name: Node) -> bool:
    """Return whether a command starts on its own line: the grammar joins `a=1 b=2` with the next
    line."""
    lines = name.start_point[0] - assignment.end_point[0]
    source = assignment.parent.text if assignment.parent else b""
    begin = assignment.parent.start_byte if assignment.parent else 0
    between = (source or b"")[assignment.end_byte - begin : name.start_byte - begin]
    return lines > between.count(b"\\\n")


def _below(node: Node) -> Iterator[Node]:
    for child in node.named_children:
        yield child
        if child.type in ("string", "concatenation", "array"):
            yield from _below(child)


def _text(status: int | None) -> str:
    return UNKNOWN if status is None else str(status)


def _of_pipe(statuses: list[int | None], pipefail: bool) -> int | None:
    if not pipefail:
        return statuses[-1]
    known = [one for one in statuses if one]
    if known:
        return known[-1]
    return None if None in statuses else 0


COMMANDS: dict[str, Callable[[Walk, Node, ShellState], None]] = {
    "variable_assignments": _variable_assignments,
    "variable_assignment": _variable_assignment,
    "declaration_command": builtins.declare,
    "unset_command": _unset_command,
    "command": _command,
    "pipeline": pipeline,
}
