"""Statements of a script: branches, loops, functions, lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.inspection import conditions, expansion
from orchestrator.inspection.commands import piped, pipeline, redirect_of
from orchestrator.inspection.flow import Break, Continue
from orchestrator.inspection.interface import Answer, End, Walk
from orchestrator.inspection.patterns import fits
from orchestrator.inspection.redirections import of_heredoc
from orchestrator.inspection.state import Function, ShellState
from orchestrator.inspection.syntax import text_of
from orchestrator.inspection.trace import UNKNOWN, is_known

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_ROUNDS = 200
"""Of one loop: more are not walked."""


def _list(walk: Walk, node: Node, shell: ShellState, redirects: Sequence[Node] = ()) -> None:
    """`redirects` belong to the right side: the grammar gives them to the list."""
    left, operator, right = node.children[0], node.children[1].type, node.children[-1]
    _either_side(
        walk,
        lambda state: walk.statement(left, state),
        operator,
        lambda state: redirect_of(walk, right, redirects, state),
        shell,
    )


Step = Callable[[ShellState], None]


def _either_side(walk: Walk, left: Step, operator: str, right: Step, shell: ShellState) -> None:
    """Walk `left`, then `right` if the operator (&& or ||) allows it."""
    begin = len(walk.trace.reads)
    with walk.guard():
        left(shell)
    if shell.status is None:
        walk.either(shell, right, lambda state: None)
        shell.finish(None)
    elif (shell.status == 0) is (operator == "&&"):
        with walk.insisting(range(begin, len(walk.trace.reads))):
            right(shell)


def _negated_command(walk: Walk, node: Node, shell: ShellState) -> None:
    with walk.guard():
        walk.statement(node.named_children[0], shell)
    shell.finish(None if shell.status is None else int(shell.status == 0))


def _compound_statement(walk: Walk, node: Node, shell: ShellState) -> None:
    if node.children and node.children[0].type == "((":
        value = conditions.arithmetic(walk, shell, node)
        shell.finish(None if value is None else int(value == 0))
        walk.failed(shell)
    else:
        walk.statements(node, shell)


def _function_definition(
    walk: Walk, node: Node, shell: ShellState, redirects: Sequence[Node] = ()
) -> None:
    """`redirects` belong to the function: the grammar gives it the first alone."""
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        first = [child for child in node.named_children if child.type.endswith("_redirect")]
        function = Function(body, shell.frame.source, (*first, *redirects))
        shell.functions[text_of(name)] = function


def _if_statement(walk: Walk, node: Node, shell: ShellState) -> None:
    _branch(walk, list(node.children), shell)


def _branch(walk: Walk, parts: list[Node], shell: ShellState) -> None:
    """Walk `if CONDITION then BODY` with the clauses that follow."""
    kinds = [part.type for part in parts]
    begin = len(walk.trace.reads)
    then = kinds.index("then")
    clauses = [at for at, kind in enumerate(kinds) if kind in ("elif_clause", "else_clause")]
    end = clauses[0] if clauses else len(parts)
    with walk.guard():
        for condition in parts[1:then]:
            if condition.is_named:
                walk.statement(condition, shell)
    answer = shell.status
    body = parts[then + 1 : end]
    rest = parts[end] if clauses else None

    def yes(state: ShellState) -> None:
        state.finish(0)
        _each(walk, body, state)

    def no(state: ShellState) -> None:
        if rest is None:
            state.finish(0)
            return
        if rest.type == "else_clause":
            _each(walk, rest.children[1:], state)
        else:
            _branch(walk, [*rest.children, *parts[end + 1 :]], state)

    if answer is None:
        walk.either(shell, yes, no)
        return
    asked = range(begin, len(walk.trace.reads))
    with walk.insisting(asked):
        (no if answer else yes)(shell)


def _each(walk: Walk, nodes: list[Node], shell: ShellState) -> None:
    for node in nodes:
        if node.is_named and node.type not in ("comment", "elif_clause", "else_clause"):
            walk.statement(node, shell)


def _case_statement(walk: Walk, node: Node, shell: ShellState) -> None:
    subject = node.child_by_field_name("value")
    value = expansion.text(walk, shell, subject) if subject is not None else UNKNOWN
    items = [child for child in node.named_children if child.type == "case_item"]
    patterns = [
        [expansion.pattern(walk, shell, part) for part in item.children_by_field_name("value")]
        for item in items
    ]
    answers = [_first(fits(value, pattern) for pattern in each) for each in patterns]
    decided = next((at for at, answer in enumerate(answers) if answer is not False), len(items))
    ends = {child.type for item in items for child in item.children if "&" in child.type}
    is_sure = is_known(value) and answers[decided : decided + 1] != [None]
    if not is_sure or ends or "nocasematch" in shell.options:
        branches = [lambda state, item=item: _each(walk, _body(item), state) for item in items]
        walk.either(shell, *branches, lambda state: state.finish(0))
        return
    if decided < len(items):
        _each(walk, _body(items[decided]), shell)
    else:
        shell.finish(0)


def _first(answers: Iterator[Answer]) -> Answer:
    """Return the first answer other than no."""
    return next((answer for answer in answers if answer is not False), False)


def _for_statement(walk: Walk, node: Node, shell: ShellState) -> None:
    name = node.child_by_field_name("variable")
    body = node.child_by_field_name("body")
    if name is None or body is None:
        return
    if any(child.type == "in" for child in node.children):
        values = [
            word
            for value in node.children_by_field_name("value")
            for word in expansion.fields(walk, shell, value)
        ]
    else:
        values = list(shell.frame.positional)
    status: int | None = 0
    broken: list[ShellState] = []
    with shell.frame.looping():
        for value in values[:MOST_ROUNDS]:
            shell.variables.set(text_of(name), value)
            if not is_known(value):
                walk.either(
                    shell, lambda state: _once(walk, body, state), lambda state: state.finish(None)
                )
            elif _round(walk, body, shell, broken):
                return
            status = shell.status
    if len(values) > MOST_ROUNDS:
        conditions.forget(shell, body)
        shell.variables.set(text_of(name), UNKNOWN)
    shell.finish(status)
    _end_loop(walk, shell, broken)


def _c_style_for_statement(walk: Walk, node: Node, shell: ShellState) -> None:
    body = node.child_by_field_name("body")
    for initializer in node.children_by_field_name("initializer"):
        if initializer.is_named:
            conditions.arithmetic(walk, shell, initializer)

    def goes_on(state: ShellState) -> Answer:
        value: int | None = 1
        for condition in node.children_by_field_name("condition"):
            if condition.is_named:
                value = conditions.arithmetic(walk, state, condition)
        return None if value is None else bool(value)

    def step(state: ShellState) -> None:
        for update in node.children_by_field_name("update"):
            if update.is_named:
                conditions.arithmetic(walk, state, update)

    if body is not None:
        _loop(walk, body, shell, goes_on, step)


def _while_statement(walk: Walk, node: Node, shell: ShellState) -> None:
    body = node.child_by_field_name("body")
    until = node.children[0].type == "until"

    def goes_on(state: ShellState) -> Answer:
        with walk.guard():
            for condition in node.children_by_field_name("condition"):
                if condition.is_named:
                    walk.statement(condition, state)
        answer = None if state.status is None else state.status == 0
        return conditions.negated(answer) if until else answer

    if body is not None:
        _loop(walk, body, shell, goes_on, lambda state: None)


def _loop(
    walk: Walk,
    body: Node,
    shell: ShellState,
    goes_on: Callable[[ShellState], Answer],
    step: Callable[[ShellState], None],
) -> None:
    status: int | None = 0
    broken: list[ShellState] = []
    with shell.frame.looping():
        for _ in range(MOST_ROUNDS):
            answer = goes_on(shell)
            if answer is False:
                shell.finish(status)
                _end_loop(walk, shell, broken)
                return
            if answer is None:
                break
            if _round(walk, body, shell, broken):
                return
            status = shell.status
            step(shell)
        conditions.forget(shell, body)
        walk.either(
            shell, lambda state: _once(walk, body, state), lambda state: state.finish(status)
        )
        _end_loop(walk, shell, broken)


def _round(walk: Walk, body: Node, shell: ShellState, broken: list[ShellState]) -> bool:
    """Return whether the body left the loop for sure. `broken`: states in which it did."""
    ends = walk.ends(shell, lambda: walk.statement(body, shell))
    next_: list[ShellState] = []
    others: list[End] = []
    for flow, state in ends:
        if isinstance(flow, Break) and flow.loops == 1:
            state.finish(0)
        if flow is None or (isinstance(flow, Continue) and flow.loops == 1):
            next_.append(state)
        elif isinstance(flow, Break) and flow.loops == 1:
            broken.append(state if state is not shell else _apart(shell))
        else:
            others.append((type(flow)(flow.loops - 1) if isinstance(flow, Break) else flow, state))
    if not next_ and broken:
        walk.join(shell, broken, others)
        broken.clear()
        return True
    walk.join(shell, next_, others)
    return False


def _apart(shell: ShellState) -> ShellState:
    copy = shell.copy()
    copy.streams.detach()
    return copy


def _end_loop(walk: Walk, shell: ShellState, broken: list[ShellState]) -> None:
    """End a loop, which may have been left before."""
    if broken:
        walk.join(shell, [_apart(shell), *broken])


def _once(walk: Walk, body: Node, shell: ShellState) -> None:
    broken: list[ShellState] = []
    _round(walk, body, shell, broken)
    _end_loop(walk, shell, broken)


def _walked(walk: Walk, node: Node) -> Step:
    return lambda shell: walk.statement(node, shell)


def _redirected_statement(walk: Walk, node: Node, shell: ShellState) -> None:
    body = node.child_by_field_name("body")
    redirects = [child for child in node.named_children if child.type.endswith("_redirect")]
    redirects = [
        redirect for each in redirects for redirect in (each, *of_heredoc(each, "file_redirect"))
    ]

    def first(state: ShellState) -> None:
        if body is not None and body.type == "list":
            _list(walk, body, state, redirects)
        elif body is not None and body.type == "pipeline":
            pipeline(walk, body, state, redirects)
        elif body is not None and body.type == "function_definition":
            _function_definition(walk, body, state, redirects)
        else:
            redirect_of(walk, body, redirects, state)

    # The grammar gives a line's rest to its here-document.
    for here in redirects:
        for pipe in of_heredoc(here, "pipeline"):
            stages = list(pipe.named_children)
            texts = ["", *map(text_of, stages)]
            piped(walk, [first, *(_walked(walk, stage) for stage in stages)], texts, set(), shell)
            return
        for operator in (*of_heredoc(here, "&&"), *of_heredoc(here, "||")):
            right = operator.next_named_sibling
            if right is not None:
                _either_side(walk, first, operator.type, _walked(walk, right), shell)
                return
    first(shell)


def _body(item: Node) -> list[Node]:
    closing = next(at for at, child in enumerate(item.children) if child.type == ")")
    return [child for child in item.children[closing + 1 :] if child.is_named]


STATEMENTS: dict[str, Callable[[Walk, Node, ShellState], None]] = {
    "list": _list,
    "negated_command": _negated_command,
    "compound_statement": _compound_statement,
    "function_definition": _function_definition,
    "if_statement": _if_statement,
    "case_statement": _case_statement,
    "for_statement": _for_statement,
    "c_style_for_statement": _c_style_for_statement,
    "while_statement": _while_statement,
    "redirected_statement": _redirected_statement,
}
