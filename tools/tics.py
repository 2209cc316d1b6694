"""Count the tics of our English per 1,000 words of docstrings and comments, and those of other
packages beside it.

usage:  python tools/tics.py [FOLDER ...]

Without a folder: ours. CEILINGS may only fall (tests/test_words.py); each is to stay below 2, the
first two below 1.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

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
CEILINGS = {"what": 0.4, "tell, say": 0.2, "that is": 0.8, "where": 0.2, "one, none": 1.2}


def prose(source: str) -> Iterator[str]:
    """Yield every docstring (those of attributes, too) and comment of a file."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", [])
        for child in body if isinstance(body, list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                text = child.value.value
                yield from [text] if isinstance(text, str) else []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#! ")


def count(folder: Path) -> tuple[int, dict[str, float]]:
    """Return the words of all files below `folder`, and each tic per 1,000 of them."""
    files = sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    text = "\n".join(piece for path in files for piece in prose(path.read_text()))
    words = len(re.findall(r"[A-Za-z][\w'-]*", text))
    found = {
        tic: len(re.findall(sign, text, re.IGNORECASE if tic != "one, none" else 0))
        for tic, sign in TICS.items()
    }
    return words, {tic: round(1000 * many / max(words, 1), 1) for tic, many in found.items()}


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]] or [PACKAGE]
    print(f"{'':24}{'words':>8}" + "".join(f"{tic:>12}" for tic in TICS))
    for folder in folders:
        words, tics = count(folder)
        print(f"{folder.name:24}{words:>8}" + "".join(f"{tics[tic]:>12}" for tic in TICS))


if __name__ == "__main__":
    main()
