"""Redirections of the input and output of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.inspection import expansion
from orchestrator.inspection.flow import Exit
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.streams import LOG, NOWHERE
from orchestrator.inspection.syntax import text_of
from orchestrator.inspection.trace import UNKNOWN, lines_of

if TYPE_CHECKING:
    from tree_sitter import Node


@contextmanager
def redirected(
    walk: Walk, redirects: Sequence[Node], shell: ShellState, *, is_simple: bool = False
) -> Iterator[None]:
    """Redirect a statement. After `exit` inside, the EXIT trap still has its redirections."""
    if not redirects:
        yield
        return
    before = shell.streams.saved()
    redirect(walk, redirects, shell)
    made = shell.streams.saved()
    stay = False
    try:
        yield
    except Exit as end:
        stay = end.cause == "exit" or (end.cause == "command" and not is_simple)
        raise
    finally:
        if not stay:
            if made.out != before.out:
                walk.keep_output(shell)
            shell.streams.restore(before, made)


def redirect(walk: Walk, redirects: Sequence[Node], shell: ShellState) -> None:
    for node in redirects:
        if node.type == "herestring_redirect":
            text = expansion.text(walk, shell, node.named_children[-1])
            shell.streams.feed(lines_of(text) if text else [""])
        elif node.type == "heredoc_redirect":
            shell.streams.feed(_heredoc(walk, node, shell).splitlines())
        else:
            _redirect_file(walk, node, shell)


def of_heredoc(node: Node, kind: str) -> list[Node]:
    """Return the parts of a line that the grammar gives to its here-document."""
    return [
        child for child in node.children if child.type == kind and node.type == "heredoc_redirect"
    ]


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
    descriptor = next(
        (text_of(child) for child in node.children if child.type == "file_descriptor"), ""
    )
    operator = next((child.type for child in node.children if not child.is_named), ">")
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
        sink = {"1": shell.streams.out, "2": shell.streams.err, "-": NOWHERE}[sink]
    elif not sink.startswith("|"):
        sink = sink if sink in (LOG, NOWHERE) else walk.absolute(shell, sink)
        walk.use_path("written", sink, walk.place(node, shell))
        walk.make(sink)
    captured = _before(walk, sink) if operator in (">>", "&>>") else []
    if operator in ("&>", "&>>") or (
        operator == ">&" and not descriptor and sink not in (shell.streams.out, shell.streams.err)
    ):
        shell.streams.send_out(sink, captured)
        shell.streams.send_err(sink)
    elif descriptor == "2":
        shell.streams.send_err(sink)
    elif descriptor in ("", "1"):
        shell.streams.send_out(sink, captured)


def _before(walk: Walk, path: str) -> list[str]:
    return [walk.tree.text(path) or ("" if walk.has(path) is False else UNKNOWN)]


def _redirect_input(walk: Walk, target: Node, shell: ShellState) -> None:
    if target.type != "process_substitution":
        walk.use_path(
            "read",
            walk.absolute(shell, expansion.text(walk, shell, target)),
            walk.place(target, shell),
        )
        shell.streams.feed(None)
        return
    shell.streams.feed(lines_of(walk.capture(target, shell)))
