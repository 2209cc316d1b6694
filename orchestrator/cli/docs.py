"""Print a document, list all, or search them.

TOPIC is a page's name (troubleshooting), its path (howto/troubleshooting, docs/exit-codes.md), or
any part of either as long as only one page has it. On a terminal a long page goes through $PAGER,
else less. --search lists the lines that have all its words, headings first, at most three a page.

example:
  orchestrator docs
  orchestrator docs flux1
  orchestrator docs --search 'spare nodes'
  orchestrator docs howto/reproduce-flux1 >flux1.md
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from orchestrator.cli.arguments import add_json, add_text
from orchestrator.cli.command import Command
from orchestrator.cli.output import is_terminal, print_json, print_parts
from orchestrator.errors import ExitCode, UsageError, did_you_mean
from orchestrator.resources import data_dir
from orchestrator.views.parts import Table

MOST_LINES = 3
"""Lines of a page that a search lists."""
MOST_TEXT = 120
"""Shown characters of a line."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "topic", metavar="TOPIC", nargs="?", default="", help="a page (default: list all of them)"
    )
    add_text(parser, "-s --search", "WORDS", "list the lines of all pages that have these words")
    add_json(parser)


def run(args: Namespace) -> int:
    pages = _pages()
    if args.search:
        return _search(args.search, pages, args.json)
    if not args.topic:
        return _list(pages, args.json)
    name = _find(args.topic, pages)
    text = pages[name].read_text(encoding="utf-8")
    if args.json:
        print_json("page", {"page": name, "title": _title(text), "text": text})
    else:
        from re import DOTALL, sub

        _show(sub(r"<!--.*?-->\n?", "", text, flags=DOTALL))  # remarks for the pages' tests
    return ExitCode.OK


def _pages() -> dict[str, Path]:
    """Return path below docs/ without `.md` -> page."""
    top = data_dir("docs")
    pages = {path.relative_to(top).with_suffix("").as_posix(): path for path in top.rglob("*.md")}
    order = ("tutorial", "howto", "", "reference", "explanation")
    return dict(
        sorted(pages.items(), key=lambda item: (order.index(item[0].rpartition("/")[0]), item[0]))
    )


def _find(topic: str, pages: dict[str, Path]) -> str:
    """Raises UsageError unless a single page matches."""
    wanted = topic.removeprefix("docs/").removesuffix(".md").strip("/").lower()
    named = [name for name in pages if wanted in (name, name.rpartition("/")[2])]
    begun = [
        name
        for name in pages
        if name.startswith(wanted) or name.rpartition("/")[2].startswith(wanted)
    ]
    within = [name for name in pages if wanted in name]
    for matches in (named, begun, within):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(f"{topic} is not one page", hint="one of: " + ", ".join(matches))
    near = did_you_mean(wanted, [*pages, *(name.rpartition("/")[2] for name in pages)])
    raise UsageError(f"there is no page {topic}{near}", hint="orchestrator docs lists all of them")


def _list(pages: dict[str, Path], as_json: bool) -> ExitCode:
    titles = {name: _title(path.read_text(encoding="utf-8")) for name, path in pages.items()}
    if as_json:
        print_json(
            "docs", {"pages": [{"page": name, "title": title} for name, title in titles.items()]}
        )
    else:
        print_parts([Table("Pages", ("page", "about"), [*titles.items()])])
    return ExitCode.OK


def _search(query: str, pages: dict[str, Path], as_json: bool) -> ExitCode:
    matches = [
        {"page": name, "line": number, "text": line}
        for name, path in pages.items()
        for number, line in _matches(query, path.read_text(encoding="utf-8"))
    ]
    if as_json:
        print_json("docs_search", {"words": query, "found": matches})
    elif matches:
        rows = [(f"{match['page']}:{match['line']}", _cut(str(match["text"]))) for match in matches]
        print_parts([Table("Lines", ("page", "line"), rows)])
    else:
        raise UsageError(f"no page has {query!r}", hint="orchestrator docs lists the pages")
    return ExitCode.OK


def _matches(query: str, text: str) -> list[tuple[int, str]]:
    """Return (number, line) of the first lines with all words, headings first."""
    wanted = query.lower().split()
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if all(word in line.lower() for word in wanted)
    ]
    return sorted(lines, key=lambda line: not line[1].startswith("#"))[:MOST_LINES]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."


def _title(text: str) -> str:
    return next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")


def _show(text: str) -> None:
    import shutil

    if is_terminal() and text.count("\n") >= shutil.get_terminal_size().lines:
        import pydoc

        pydoc.pager(text)
    else:
        print(text.rstrip())


COMMAND = Command(
    "docs",
    __doc__,
    add_arguments,
    run,
)
