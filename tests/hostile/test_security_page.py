"""SECURITY.md, line by line: every promise names tests, and they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from sources import tree

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "SECURITY.md").read_text()
PROMISED = PAGE.partition("## What is promised")[2].partition("## What is not")[0]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promises() -> list[str]:
    """Every promise: a paragraph in bold, or a line of its list."""
    texts = [part.strip() for part in re.split(r"\n\n|\n(?=- )", PROMISED)]
    return [text for text in texts if text.startswith(("- ", "**"))]


def test_every_promise_has_a_test() -> None:
    headings = [text for text in promises() if text.startswith("**") and not NAMED.search(text)]
    for text in headings:  # one with a list, each line of which has tests
        assert f"{text}\n\n- " in PROMISED, text
    silent = [text for text in promises() if text not in headings and not NAMED.search(text)]
    assert silent == [] and len(promises()) > 25


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(PAGE))))
def test_a_named_test_exists(path: str, name: str) -> None:
    functions = [node.name for node in tree(TOP / path).body if isinstance(node, ast.FunctionDef)]
    assert name in functions
