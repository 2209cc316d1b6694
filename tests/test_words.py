"""Our English may only get plainer: the tics of tools/tics.py stay below their ceilings, and these follow them down.

In help, messages and documents the words of PLAIN are not used at all.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tools"))

from tics import CEILINGS, PACKAGE, TICS, count, prose  # noqa: E402

SLACK = 0.4
"""Per 1,000 words: whoever brings a tic down by more than this lowers its ceiling, too."""


def test_tics_only_become_fewer() -> None:
    words, tics = count(PACKAGE)
    assert words > 20_000 and tics.keys() == CEILINGS.keys() == TICS.keys()
    assert {tic: (many, CEILINGS[tic]) for tic, many in tics.items() if many > CEILINGS[tic]} == {}
    assert {tic: many for tic, many in tics.items() if many < CEILINGS[tic] - SLACK} == {}, (
        "lower CEILINGS"
    )


@pytest.mark.parametrize(
    "source",
    [
        '"""Prose."""',
        "class A:\n    x = 1\n    'Prose.'",
        "def f():\n    'Prose.'\n    return 'no'",
        "x = 1  # Prose.",
    ],
)
def test_docstrings_and_comments_are_counted_and_other_texts_are_not(source: str) -> None:
    assert list(prose(source)) == ["Prose."]


# ---- the words that people read ----

PLAIN = {
    "excluded": r"set aside|aside",
    "next to, in addition to, compared with": r"beside",
    "continues, is running": r"goes on|go on|going on",
    "fix": r"mends?|mended",
    "setting": r"knobs?",
    "name the owner": r"(?<!nothing )of ours|(?<!of )ours",
    "submit, package": r"handed in|hand in|hands in",
    "missing": r"(?:is|are) not there",
    "bandwidth test": r"deep step",
    "show, report": r"tells?|told",
    "start": r"begins?|beginning|began",
    "check": r"looks at|looked at",
    "ended, missing": r"(?:is|are) gone",
    "the user who": r"whoever",
    "recorded": r"on record",
    "per-node results": r"who ran what",
    "internal error": r"defect of ours",
    "cause unknown": r"not known why",
}
"""The word to write -> the words it replaces, in help, messages and documents."""
WRONG = {
    better: re.compile(rf"(?<![-\w])(?:{words})(?![-\w])", re.I) for better, words in PLAIN.items()
}
LEFT = {
    "orchestrator/causes/forms.py",  # patterns of other people's logs
    "orchestrator/onnode/policy/trouble.py",
    "orchestrator/simulation/slurm_sbatch.py",  # Slurm's own words
    "orchestrator/generated/",
}
"""Files with texts of other programs."""


def wrong_words(text: str) -> list[str]:
    return [
        f"{found[0]!r}: write {better}"
        for better, pattern in WRONG.items()
        for found in pattern.finditer(text)
    ]


def prose_of(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of a document without its blocks and code spans."""
    inside = False
    for number, line in enumerate(page.read_text().split("\n"), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and not line.startswith("    "):
            yield number, re.sub(r"`[^`\n]*`", "", line)


DOCUMENTS = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(TOP)))
def test_documents_use_the_plain_words(page: Path) -> None:
    found = [
        f"{page.relative_to(TOP)}:{number}: {one}"
        for number, line in prose_of(page)
        for one in wrong_words(line.replace("### part knob", ""))
    ]
    assert found == []


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string of a module that is not a docstring."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in docstrings and " " in text.strip():
            yield node.lineno, text


def test_help_and_messages_use_the_plain_words() -> None:
    """The help of commands is in docs/reference/cli.md, which is a document, too."""
    found, seen = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(TOP))
        if any(name.startswith(left) for left in LEFT):
            continue
        for line, text in messages(path.read_text()):
            seen += 1
            found += [f"{name}:{line}: {one}" for one in wrong_words(text)]
    assert seen > 3000
    assert found == []


def test_pages_and_causes_use_the_plain_words() -> None:
    """The templates of reports and of a bundle's README, and the causes that `explain` names."""
    found = []
    pages = [TOP / "templates/README.j2", *sorted((TOP / "templates/report").glob("*.j2"))]
    texts = {path: path.read_text() for path in pages}
    for path, text in texts.items():
        prose_ = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", " ", text, flags=re.DOTALL)
        found += [f"{path.relative_to(TOP)}: {one}" for one in wrong_words(prose_)]
    causes = json.loads((PACKAGE / "causes/causes.json").read_text())
    shown = [
        text
        for cause in causes["causes"]
        for key in ("sentence", "remedy")
        if (text := cause.get(key))
    ]
    assert len(texts) >= 5 and len(shown) > 100
    assert [*found, *(one for text in shown for one in wrong_words(text))] == []


@pytest.mark.parametrize(
    "text", ["The node was set aside.", "it goes on", "what mends it", "a knob", "Whoever submits"]
)
def test_the_list_finds_its_words(text: str) -> None:
    assert wrong_words(text)
    assert not wrong_words("--begin excluded, continues, fixes, settings")


def test_the_glossary_is_short() -> None:
    rows = re.findall(r"^\| (?!here|-)", (TOP / "docs/glossary.md").read_text(), re.MULTILINE)
    assert 20 <= len(rows) <= 30
