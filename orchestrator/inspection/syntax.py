"""Bash text as a syntax tree (tree-sitter)."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_BYTES = 1 << 20
"""Longer scripts are generated, with data in them."""

SEMICOLON = "\ue001"
_DEFAULT = re.compile(r'"\$\{\w+:?[-=+][^"{}\n]*\}')
"""The grammar ends the command at the semicolon of "${NAME:-a;b}"."""


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(text: str) -> Node:
    """Return a script's tree; text other than bash becomes nodes of type ERROR."""
    root = _parser().parse(text.encode("utf-8", "surrogateescape")[:MOST_BYTES]).root_node
    if root.has_error and (changed := _DEFAULT.sub(_hidden, text)) != text:
        other = _parser().parse(changed.encode("utf-8", "surrogateescape")[:MOST_BYTES]).root_node
        return root if other.has_error else other
    return root


def _hidden(match: re.Match[str]) -> str:
    return match[0].replace(";", SEMICOLON)


def text_of(node: Node) -> str:
    return decoded(node.text or b"")


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace(SEMICOLON, ";")


def line_of(node: Node) -> int:
    return int(node.start_point[0]) + 1


@lru_cache(4096)
def arguments_of(text: str) -> list[Node]:
    """Return the words of a text; [] if it cannot be parsed as arguments alone."""
    commands = parse(f"echo {text}").named_children
    if len(commands) != 1 or commands[0].type != "command" or commands[0].has_error:
        return []
    arguments = commands[0].children_by_field_name("argument")
    return arguments if len(arguments) == len(commands[0].children) - 1 else []


def first_error(node: Node) -> Node | None:
    pending = [node]
    while pending:
        here = pending.pop()
        if here.type == "ERROR" or here.is_missing:
            return here
        pending.extend(child for child in reversed(here.children) if child.has_error)
    return None


def assigned_names(node: Node) -> set[str]:
    names: set[str] = set()
    pending = [node]
    while pending:
        here = pending.pop()
        if here.type == "variable_assignment":
            name = here.child_by_field_name("name")
            names.add(text_of(name).partition("[")[0] if name else "")
        elif here.type in ("postfix_expression", "unary_expression", "binary_expression"):
            if re.search(r"\+\+|--|(?<![=!<>])=(?!=)|<<=|>>=", text_of(here)):
                names.update(re.findall(r"[A-Za-z_]\w*", text_of(here.named_children[0])[:80]))
        elif here.type == "command" and text_of(here).startswith("let "):
            names.update(re.findall(r"[A-Za-z_]\w*", text_of(here))[1:])
        elif here.type == "command" and text_of(here).startswith(("read ", "mapfile ")):
            names.update(word for word in text_of(here).split()[1:] if word.isidentifier())
        pending.extend(here.named_children)
    return names
