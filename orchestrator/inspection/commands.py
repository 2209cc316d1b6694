"""Commands of a script: assignments, calls, subshells, pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.inspection import builtins, conditions, expansion, programs
from orchestrator.inspection.assignments import assign, name_of
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.redirections import redirect, redirected
from orchestrator.inspection.state import Function, ShellState
from orchestrator.inspection.streams import LOG
from orchestrator.inspection.syntax import arguments_of, text_of
from orchestrator.inspection.trace import UNKNOWN, Assignment, lines_of, whole_number

if TYPE_CHECKING:
    from tree_sitter import Node


SIMPLE = {
    "command",
    "declaration_command",
    "unset_command",
    "variable_assignment",
    "variable_assignments",
}


def _variable_assignments(walk: Walk, node: Node, shell: ShellState) -> None:
    for child in node.named_children:
        _variable_assignment(walk, child, shell)


def _variable_assignment(walk: Walk, node: Node, shell: ShellState) -> None:
    substitutes = "command_substitution" in {part.type for part in _below(node)}
    assign(walk, node, shell)
    if not substitutes:
        shell.finish(0)
    walk.failed(shell, "command")


def _unset_names(walk: Walk, node: Node, shell: ShellState) -> list[str]:
    """Return the words of `unset`: the grammar cuts A[1] in two."""
    arguments = arguments_of(text_of(node).partition(" ")[2])
    return [word for part in arguments for word in expansion.fields(walk, shell, part)]


def _unset_command(walk: Walk, node: Node, shell: ShellState) -> None:
    kind = ""
    for name in _unset_names(walk, node, shell):
        if name.startswith("-"):
            kind = name
            continue
        if kind == "-f" or (name not in shell.variables and name in shell.functions):
            shell.functions.pop(name, None)
            continue
        base, _, key = name.partition("[")
        key = key.removesuffix("]")
        value = shell.variables.get(base)
        if key and isinstance(value, dict):
            shell.variables.set(base, {k: v for k, v in value.items() if k != key})
        elif key and isinstance(value, list) and key in (str(len(value) - 1), "-1"):
            shell.variables.set(base, value[:-1])
        elif key and isinstance(value, list) and whole_number(key) not in range(len(value)):
            continue
        elif key:
            shell.variables.set(base, [UNKNOWN])
        else:
            place = walk.place(node, shell)
            walk.trace.assignments.append(Assignment(name, "", True, place))
            shell.variables.unset(name)
    shell.finish(0)


def _command(walk: Walk, node: Node, shell: ShellState) -> None:
    _redirected_command(walk, node, (), shell)
    walk.failed(shell, "command")


def _redirected_command(
    walk: Walk, node: Node, redirects: Sequence[Node], shell: ShellState
) -> None:
    name_node = node.child_by_field_name("name")
    assignments = [child for child in node.named_children if child.type == "variable_assignment"]
    if name_node is not None and assignments and _are_apart(assignments[-1], name_node):
        for assignment in assignments:
            _variable_assignment(walk, assignment, shell)
        assignments = []
    argv = expansion.fields(walk, shell, name_node) if name_node is not None else []
    for child in node.children_by_field_name("argument"):
        argv += expansion.fields(walk, shell, child)
    runs_here = not argv or argv[0] in shell.functions or argv[0] in builtins.BUILTINS
    target = shell if runs_here or not assignments else shell.copy()
    with target.variables.restored(map(name_of, assignments) if argv else ()):
        for assignment in assignments:
            target.variables.export(assign(walk, assignment, target))
        mine = [child for child in node.named_children if child.type.endswith("_redirect")]
        if argv == ["exec"]:  # of the shell itself, from here on
            redirect(walk, [*mine, *redirects], shell)
            shell.finish(0)
            return
        with redirected(walk, [*mine, *redirects], target, is_simple=True):
            if argv:
                _call(walk, argv, node, target)
    shell.finish(target.status)


def _call(walk: Walk, argv: list[str], node: Node, shell: ShellState) -> None:
    name = argv[0]
    if name in shell.functions:
        _function(walk, shell.functions[name], argv[1:], shell)
    elif name in builtins.BUILTINS:
        shell.finish(builtins.BUILTINS[name](walk, shell, argv, node))
    else:
        shell.finish(programs.run(walk, shell, argv, walk.place(node, shell)))
    shell.variables.set("PIPESTATUS", [_text(shell.status)])


def _function(walk: Walk, function: Function, arguments: list[str], shell: ShellState) -> None:
    def body() -> None:
        with redirected(walk, function.redirects, shell):
            walk.statement(function.body, shell)

    with (
        shell.variables.scope(),
        shell.frame.calling(function, arguments),
        walk.nested() as fits,
    ):
        if fits:
            walk.returned(shell, body)


def _subshell(walk: Walk, node: Node, shell: ShellState) -> None:
    _unchecked(walk, node, shell)
    walk.failed(shell)


def _test_command(walk: Walk, node: Node, shell: ShellState) -> None:
    _unchecked(walk, node, shell)
    walk.failed(shell, "command" if _is_simple(node) else "exit")


def _unchecked(walk: Walk, node: Node, shell: ShellState) -> None:
    if node.type == "subshell":
        inner = shell.subshell()
        shell.finish(walk.process(inner, lambda: walk.statements(node, inner), keep_exits=True))
    else:
        answer = conditions.test(walk, shell, node)
        shell.finish(None if answer is None else int(not answer))


def redirect_of(
    walk: Walk, body: Node | None, redirects: Sequence[Node], shell: ShellState
) -> None:
    """Walk a redirected statement. Redirections of simple commands and subshells end before a
    failure counts."""
    if body is None:
        with redirected(walk, redirects, shell):
            return
    is_simple = _is_simple(body)
    if body.type == "command":
        _redirected_command(walk, body, redirects, shell)
    elif body.type == "subshell" or (is_simple and body.type == "test_command"):
        with redirected(walk, redirects, shell, is_simple=is_simple):
            _unchecked(walk, body, shell)
    else:
        with redirected(walk, redirects, shell, is_simple=is_simple):
            walk.statement(body, shell)
        return
    walk.failed(shell, "command" if is_simple else "exit")


def _is_simple(node: Node) -> bool:
    if node.type == "test_command":
        return node.children[0].type == "["
    return node.type in SIMPLE


def pipeline(walk: Walk, node: Node, shell: ShellState, redirects: Sequence[Node] = ()) -> None:
    """`redirects` belong to the last stage: the grammar gives them to all."""
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
    texts = [text_of(stage) for stage in stages]
    texts[-1] = " ".join([texts[-1], *map(text_of, redirects)])
    piped(walk, steps, texts, with_errors, shell)


def piped(
    walk: Walk,
    steps: Sequence[Callable[[ShellState], None]],
    texts: Sequence[str],
    with_errors: set[int],
    shell: ShellState,
) -> None:
    """Stages `with_errors` send standard error along."""
    statuses: list[int | None] = []
    text: list[str] | None = None
    for at, step in enumerate(steps):
        last = at == len(steps) - 1
        inner = shell.subshell()
        if at:
            inner.streams.feed(text)
        output: list[str] = []
        if not last:
            rest = " | ".join(texts[at + 1 :])
            out = shell.streams.out
            onward = f">{out}" if out.startswith("/") else out.removeprefix(LOG)
            inner.streams.send_out(f"| {rest} {onward}".rstrip(), output)
            if at in with_errors:
                inner.streams.send_err(inner.streams.out)
        statuses.append(walk.process(inner, partial(step, inner), keep_exits=True))
        text = lines_of("".join(output))
    shell.variables.set("PIPESTATUS", [_text(status) for status in statuses])
    shell.finish(_of_pipe(statuses, "pipefail" in shell.options))
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
    known = [status for status in statuses if status]
    if known:
        return known[-1]
    return None if None in statuses else 0


COMMANDS: dict[str, Callable[[Walk, Node, ShellState], None]] = {
    "variable_assignments": _variable_assignments,
    "variable_assignment": _variable_assignment,
    "declaration_command": builtins.declare,
    "unset_command": _unset_command,
    "command": _command,
    "subshell": _subshell,
    "test_command": _test_command,
    "pipeline": pipeline,
}
