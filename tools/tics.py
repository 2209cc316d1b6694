"""Count the tics of our English per 1,000 words of docstrings and comments, and of the other texts
in the code: messages, help, pages. Two rows for each folder.

usage:  python tools/tics.py [FOLDER ...]

Without a folder: ours. CEILINGS and TEXT_CEILINGS may only fall (tests/lint/test_words.py). The last
column has the words of docstrings and comments per 1,000 tokens of code.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "orchestrator"
TICS = {
    "what": r"\bwhat\b",
    "tell, say": r"\b(?:tells?|telling|told|says?|saying|said)\b",
    "that is": r"\bthat (?:is|are|was|were)\b",
    "where": r"\bwhere\b",
    "one, none": (  # as nouns: "the one that", "none of them"; not "one node"
        r"\b(?:ones|none)\b|\bone(?=[.,;:)]|\s+(?:that|which|who|is|has|was|of|in|on|for|with|as|to"
        r"|by|at|and|or|after|from|before)\b)"
    ),
}
EMPTY = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
"""Tokens of white space."""
CEILINGS = {"what": 0.4, "tell, say": 0.2, "that is": 0.8, "where": 0.2, "one, none": 1.2}
"""Of docstrings and comments."""
TEXT_CEILINGS = {"what": 0.9, "tell, say": 0.6, "that is": 0.6, "where": 0.6, "one, none": 2.2}
"""Of other texts, scripts and names in them included."""


def split(source: str, module: ast.Module | None = None) -> tuple[list[str], int]:
    """Return every docstring (those of attributes, too) and comment of a file, and its number of
    tokens of code: without white space."""
    texts, comments, places, code = [], [], set(), 0
    for node in ast.walk(module or ast.parse(source)):
        body = getattr(node, "body", [])
        for child in body if isinstance(body, list) else []:
            value = getattr(child, "value", None) if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts.append(value.value)
                places.add((value.lineno, value.col_offset))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string.lstrip("#! "))
        elif token.type not in EMPTY and token.start not in places:
            code += 1
    return [*texts, *comments], code


def messages(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string of a module with a space, except docstrings."""
    docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in docstrings and " " in text.strip():
            yield node.lineno, text


class Counts(NamedTuple):
    """Prose and code of a folder."""

    words: int
    tokens: int
    tics: dict[str, float]
    """Per 1,000 words."""
    text_words: int
    text_tics: dict[str, float]

    @property
    def per_token(self) -> float:
        """Words per 1,000 tokens of code."""
        return round(1000 * self.words / max(self.tokens, 1), 1)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def count(folder: Path, parsed: Callable[[Path], ast.Module] = _parsed) -> Counts:
    """Count the words, tokens and tics of all files below `folder`."""
    files = sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    modules = [parsed(path) for path in files]
    parts = [split(path.read_text(), module) for path, module in zip(files, modules, strict=True)]
    texts = (text for module in modules for _, text in messages(module))
    number, tics = _measure(piece for prose, _ in parts for piece in prose)
    return Counts(number, sum(tokens for _, tokens in parts), tics, *_measure(texts))


def _measure(texts: Iterable[str]) -> tuple[int, dict[str, float]]:
    """Return the number of words, and the tics per 1,000 words."""
    text = "\n".join(texts)
    number = len(re.findall(r"[A-Za-z][\w'-]*", text))
    signs = {
        tic: len(re.findall(sign, text, re.IGNORECASE if tic != "one, none" else 0))
        for tic, sign in TICS.items()
    }
    return number, {tic: round(1000 * many / max(number, 1), 1) for tic, many in signs.items()}


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]] or [PACKAGE]
    columns = (*TICS, "per 1,000")
    print(f"{'':24}{'words':>8}" + "".join(f"{column:>12}" for column in columns))
    for folder in folders:
        counts = count(folder)
        cells = (*counts.tics.values(), counts.per_token)
        print(f"{folder.name:24}{counts.words:>8}" + "".join(f"{cell:>12}" for cell in cells))
        cells = tuple(counts.text_tics.values())
        print(
            f"{'  other texts':24}{counts.text_words:>8}" + "".join(f"{cell:>12}" for cell in cells)
        )


if __name__ == "__main__":
    main()
