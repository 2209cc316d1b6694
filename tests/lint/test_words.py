"""Our English may only get plainer: the tics of tools/tics.py stay below their ceilings, and these follow them down.

In help, messages and documents the words of PLAIN are not used at all.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from sources import tree

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))

from tics import CEILINGS, PACKAGE, TEXT_CEILINGS, TICS, Counts, messages, split  # noqa: E402
from tics import count as count_tics  # noqa: E402

from orchestrator.words import count  # noqa: E402

SLACK = 0.4
"""Per 1,000 words: whoever brings a tic down by more than this lowers its ceiling, too."""


MOST_WORDS = 136
"""Words of docstrings and comments per 1,000 tokens of code: the integer above `python tools/tics.py`'s last column."""


@cache
def counts_of_the_package() -> Counts:
    return count_tics(PACKAGE, tree)


@pytest.mark.parametrize("ceilings", [CEILINGS, TEXT_CEILINGS], ids=["docstrings", "texts"])
def test_tics_only_become_fewer(ceilings: dict[str, float]) -> None:
    counts = counts_of_the_package()
    tics = counts.tics if ceilings is CEILINGS else counts.text_tics
    assert counts.text_words > 20_000 and tics.keys() == ceilings.keys() == TICS.keys()
    assert {tic: (many, ceilings[tic]) for tic, many in tics.items() if many > ceilings[tic]} == {}
    assert {tic: many for tic, many in tics.items() if many < ceilings[tic] - SLACK} == {}, (
        "lower the ceilings"
    )


def test_words_only_become_fewer() -> None:
    counts = counts_of_the_package()
    assert counts.words > 20_000
    assert counts.tokens > 100_000 and counts.per_token <= MOST_WORDS
    assert counts.per_token > MOST_WORDS - 2, "lower MOST_WORDS"


def test_tokens_of_code_are_counted_and_prose_is_not() -> None:
    source = '''"""Prose."""
def f(a):  # Prose.
    "Prose."
    return "no", a
'''
    assert split(source)[1] == len(("def", "f", "(", "a", ")", ":", "return", "no", ",", "a"))


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
    assert split(source)[0] == ["Prose."]


CLAUSE = re.compile(r"(?:How|Why|What|Who|Whose|Whether|When|Where|Which)\b")


def clauses(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, docstring) of a module, its classes and its functions that start with a clause."""
    for node in ast.walk(module):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node) or ""
            if CLAUSE.match(text):
                yield getattr(node, "lineno", 1), text.partition("\n")[0]


def test_docstrings_start_with_a_verb_or_a_noun() -> None:
    assert [text for _, text in clauses(ast.parse('"""What it is."""\ndef f(): "Whatever."'))] == [
        "What it is."
    ]
    wrong = [
        f"{path.relative_to(TOP)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in clauses(tree(path))
    ]
    assert wrong == []


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
    "differ": r"comes? out otherwise",
}
"""The word to write -> the words it replaces, in help, messages and documents."""
WRONG = {
    better: re.compile(rf"(?<![-\w])(?:{plain})(?![-\w])", re.I) for better, plain in PLAIN.items()
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
        f"{match[0]!r}: write {better}"
        for better, pattern in WRONG.items()
        for match in pattern.finditer(text)
    ]


@cache
def messages_of_the_package() -> list[tuple[str, int, str]]:
    """Return (file, line, text) of all messages."""
    return [
        (str(path.relative_to(TOP)), line, text)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in messages(tree(path))
    ]


def prose_of(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of a document without its blocks and code spans."""
    text = page.read_text()
    if page == CHANGELOG:  # releases are history
        text, *_ = re.split(r"^## (?!Unreleased)", text, flags=re.MULTILINE)
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and not line.startswith("    "):
            yield number, re.sub(r"`[^`\n]*`", "", line)


CHANGELOG = TOP / "CHANGELOG.md"
DOCUMENTS = [
    *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "lab/README.md")),
    *(TOP / name for name in ("lab/standins/README.md", "benchmarks/README.md")),
    CHANGELOG,
    *sorted((TOP / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(TOP)))
def test_documents_use_the_plain_words(page: Path) -> None:
    wrong = [
        f"{page.relative_to(TOP)}:{number}: {problem}"
        for number, line in prose_of(page)
        for problem in wrong_words(line.replace("### part knob", ""))
    ]
    assert wrong == []


def test_help_and_messages_use_the_plain_words() -> None:
    """The help of commands is in docs/reference/cli.md, which is a document, too."""
    ours = [place for place in messages_of_the_package() if not place[0].startswith(tuple(LEFT))]
    assert len(ours) > 3000
    wrong = [
        f"{name}:{line}: {problem}" for name, line, text in ours for problem in wrong_words(text)
    ]
    assert wrong == []


def test_pages_and_causes_use_the_plain_words() -> None:
    """The templates of reports and of a bundle's README, and the causes that `explain` names."""
    wrong = []
    pages = [TOP / "templates/README.j2", *sorted((TOP / "templates/report").glob("*.j2"))]
    texts = {path: path.read_text() for path in pages}
    for path, text in texts.items():
        prose_ = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", " ", text, flags=re.DOTALL)
        wrong += [f"{path.relative_to(TOP)}: {problem}" for problem in wrong_words(prose_)]
    causes = json.loads((PACKAGE / "causes/causes.json").read_text())
    shown = [
        text
        for cause in causes["causes"]
        for key in ("sentence", "remedy")
        if (text := cause.get(key))
    ]
    assert len(texts) >= 5 and len(shown) > 100
    assert [*wrong, *(problem for text in shown for problem in wrong_words(text))] == []


def test_schemas_use_the_plain_words() -> None:
    """The descriptions of what --json prints, made from tools/json_outputs.yaml."""
    schemas = (PACKAGE / "generated/schemas/outputs.json").read_text()
    shown = re.findall(r'"description": "(.*)"', schemas)
    assert len(shown) > 500
    assert [problem for text in shown for problem in wrong_words(text)] == []


# ---- numbers and their nouns ----

COUNTED = (
    "attempt|bundle|change|character|check|copy|decision|device|entry|error|evaluation|event|"
    "failure|file|folder|GPU|host|image|job|layer|line|link|log|member|minute|node|part|point|port|"
    "problem|process|rank|record|result|row|run|sample|second|seed|set|setting|side|spare|step|"
    "submission|system|time|try|value|variable|warning"
)
PLURALS = "|".join(count(2, noun)[2:] for noun in COUNTED.split("|"))
MANY = re.compile(rf" (?:(?!(?:has|needs|in|over|by) )[\w-]+ )?(?:{PLURALS})\b")
SEVERAL = {
    "each of {nodes} nodes would train alone": "of more nodes than one",
    "and {len(lines) - height + 1} more lines": "of at least two, which make room for this one",
    "all {total} nodes": "of more nodes than two: one has its name, two are both",
    "{len(ranks)} ranks": "of more ranks than one: one has its number",
    "{len(sides)} sides, a row each": "a comparison has two at least",
    "{site.side_by_side} runs side by side": "more than one",
    "{at_once} runs are side by side": "more than one",
    "{attempts} attempts died alike": "of three at least",
    "Exactly the {used} required runs": "as many as the rules require",
    "sees {self.gpus} of {wanted} GPUs": "more than it sees",
    "it has {len(images)} images": "none, or several",
    "logged {len(records)} times with the same value": "more than one",
    "and is {len(records)} times with different values": "more than one",
    "{len(run.seeds)} seeds are logged": "more than one",
    "matches {len(begun)} systems": "more than one",
    "matches {len(folders)} sets": "more than one",
    "{runs} runs are recorded": "more than were declared",
    "{len(score.runs)} runs: the median window": "more than the rules require",
    "the window of {used} runs": "as many as the rules require",
    "has {nodes} nodes but its fabric is none": "of more nodes than one",
    "connects the {nodes} nodes": "of more nodes than one",
    "{raw} minutes; accepted": "a number that is refused, which 1 is not",
    "checks it": "a verb",
    "runs micro batch": "a verb",
    "runs backwards": "a verb",
    "{name} runs": "a verb",
    "runs on {job.host}": "a verb",
    "{which} variables": "a name",
    "{rule.least} times, not": "more than once, which has its own text",
    "{samples} samples took": "many",
    "{relaxed} samples are": "many",
    "{text} {len(up)} GPUs": "more than one: one has no links",
    "{runs} runs were": "another number than 1, which has its own text",
    "cannot have {nexp} runs": "more than a set has, which is one at least",
}
"""Part of a text with a number that is never 1 -> why."""


def numbers_with_plurals(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every f-string that puts a plural behind a whole number."""
    for node in ast.walk(module):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in pairwise(node.values):
            if not (isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant)):
                continue
            if value.format_spec or re.match(r"[A-Z_]+$|plain\(|rate\(", ast.unparse(value.value)):
                continue  # decimals, limits of ours, and formatted numbers
            if MANY.match(str(text.value)):
                yield node.lineno, ast.unparse(node)[2:-1]


def test_numbers_have_a_noun_of_their_number() -> None:
    """`1 runs` is printed nowhere: a message takes words.count(), or its number is never 1."""
    wrong, used = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in ("simulation", "generated"):
            continue
        for line, text in numbers_with_plurals(tree(path)):
            reasons = [part for part in SEVERAL if part in text]
            used.update(reasons)
            wrong += [] if reasons else [f"{path.relative_to(TOP)}:{line}: {text}"]
    assert wrong == [], "orchestrator.words.count()"
    assert SEVERAL.keys() - used == set(), "texts that are not there"


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("f'{n} runs are left'", True),
        ("f'{len(n)} more nodes'", True),
        ("f'{n:.1f} minutes'", False),
        ("f'{MOST_RUNS} runs'", False),
        ("f'{name} runs'", True),
        ("f'{count(n, noun)} left'", False),
    ],
)
def test_a_plural_behind_a_number_is_seen(source: str, wrong: bool) -> None:
    assert bool(list(numbers_with_plurals(ast.parse(source)))) is wrong


def test_scripts_and_templates_put_no_plural_behind_a_number() -> None:
    """Shell text, % formats and templates, which are no f-strings."""
    pattern = re.compile(rf"(?:\$\{{?\w+\}}?|%[ds]|\}}\}}) (?:{PLURALS})\b")
    assert pattern.search("$count files") and pattern.search("{{ entry.nodes }} nodes")
    pages = [path for path in (TOP / "templates").rglob("*") if path.is_file()]
    sources = [*pages, *PACKAGE.rglob("*.py")]
    matches = {path: pattern.findall(path.read_text()) for path in sources}
    assert {path: shown for path, shown in matches.items() if shown} == {}


def test_no_plural_stands_in_brackets() -> None:
    """No `node(s)` in messages, help, pages and templates."""
    shown = [
        f"{name}:{line}: {text}"
        for name, line, text in messages_of_the_package()
        if re.search(r"\w\(s\)", text)
    ]
    pages = [path for path in (TOP / "templates").rglob("*") if path.is_file()]
    assert len(pages) > 10
    for path in [*pages, *DOCUMENTS]:
        shown += [
            f"{path.relative_to(TOP)}: {plural}"
            for plural in re.findall(r"\w+\(s\)", path.read_text())
        ]
    assert shown == []


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "try", "2 tries"),
        (3, "process", "3 processes"),
        (2, "key", "2 keys"),
        (2, "more node", "2 more nodes"),
    ],
)
def test_a_number_with_its_noun(number: int, noun: str, text: str) -> None:
    assert count(number, noun) == text


@pytest.mark.parametrize(
    "text", ["The node was set aside.", "it goes on", "what mends it", "a knob", "Whoever submits"]
)
def test_the_list_finds_its_words(text: str) -> None:
    assert wrong_words(text)
    assert not wrong_words("--begin excluded, continues, fixes, settings")


def test_the_glossary_is_short() -> None:
    rows = re.findall(r"^\| (?!here|-)", (TOP / "docs/glossary.md").read_text(), re.MULTILINE)
    assert 20 <= len(rows) <= 30
