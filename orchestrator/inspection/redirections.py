"""Redirections of the input and output of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.inspection import expansion
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import LOG, NOWHERE, ShellState
from orchestrator.inspection.syntax import text_of
from orchestrator.inspection.trace import UNKNOWN, lines_of

if TYPE_CHECKING:
    from tree_sitter import Node


def redirect_of(
    walk: Walk, body: Node | None, redirects: Sequence[Node], shell: ShellState
) -> None:
    if body is not None and text_of(body) == "exec":  # of the shell itself, from here on
        _redirect(walk, redirects, shell)
        shell.status = 0
        return
    with redirected(walk, redirects, shell):
        if body is not None:
            walk.statement(body, shell)


@contextmanager
def redirected(walk: Walk, redirects: Sequence[Node], shell: ShellState) -> Iterator[None]:
    before = shell.out, shell.err, shell.captured, shell.stdin
    file = _redirect(walk, redirects, shell)
    try:
        yield
    finally:
        if file and shell.captured is not None:
            walk.make(file, "".join(shell.captured))
        shell.out, shell.err, shell.captured, shell.stdin = before


def _redirect(walk: Walk, redirects: Sequence[Node], shell: ShellState) -> str:
    """Make redirections; return the file that gets the standard output, or ""."""
    before = shell.out
    for node in redirects:
        if node.type == "herestring_redirect":
            text = expansion.text(walk, shell, node.named_children[-1])
            shell.stdin = lines_of(text) if text else [""]
        elif node.type == "heredoc_redirect":
            shell.stdin = _heredoc(walk, node, shell).splitlines()
        else:
            _redirect_file(walk, node, shell)
    is_file = shell.out.startswith("/") and shell.captured is not None
    return shell.out if is_file and shell.out != before else ""


def of_heredoc(node: Node, kind: str) -> list[Node]:
    """Return the parts of a line that the grammar gives to its here-document."""
    return [one for one in node.children if one.type == kind and node.type == "heredoc_redirect"]


def _heredoc(walk: Walk, node: Node, shell: ShellState) -> str:
    body = next(iter(of_heredoc(node, "heredoc_body")), None)
    if body is None:
        return ""
    if not text_of(of_heredoc(node, "heredoc_start")[0]).isidentifier():
        text = text_of(body)  # a quoted delimiter: as it stands
    else:
        text = expansion.heredoc(walk, shell, body)
    return re.sub(r"(?m)^\t+", "", text) if of_heredoc(node, "<<-") else text


def _redirect_file(walk: Walk, node: Node, shell: ShellState) -> None:
    descriptor = next((text_of(one) for one in node.children if one.type == "file_descriptor"), "")
    operator = next((one.type for one in node.children if not one.is_named), ">")
    target = node.child_by_field_name("destination")
    if target is None:
        return
    if operator == "<":
        _redirect_input(walk, target, shell)
        return
    if target.type == "process_substitution":
        sink = f"| {text_of(target)[2:-1]}"
    else:
        sink = expansion.text(walk, shell, target)
    if operator == ">&" and sink in ("1", "2", "-"):
        sink = {"1": shell.out, "2": shell.err, "-": NOWHERE}[sink]
    elif not sink.startswith("|"):
        sink = sink if sink in (LOG, NOWHERE) else walk.absolute(shell, sink)
        walk.use_path("written", sink, walk.place(node, shell))
        walk.make(sink)
    captured = _before(walk, sink) if operator in (">>", "&>>") else []
    if operator in ("&>", "&>>") or (
        operator == ">&" and not descriptor and sink not in (shell.out, shell.err)
    ):
        shell.out = shell.err = sink
        shell.captured = captured
    elif descriptor == "2":
        shell.err = sink
    elif descriptor in ("", "1"):
        shell.out = sink
        shell.captured = captured


def _before(walk: Walk, path: str) -> list[str]:
    return [walk.tree.text(path) or ("" if walk.has(path) is False else UNKNOWN)]


def _redirect_input(walk: Walk, target: Node, shell: ShellState) -> None:
    if target.type != "process_substitution":
        walk.use_path(
            "read",
            walk.absolute(shell, expansion.text(walk, shell, target)),
            walk.place(target, shell),
        )
        shell.stdin = None
        return
    output = walk.capture(target, shell)
    shell.stdin = lines_of(output)
