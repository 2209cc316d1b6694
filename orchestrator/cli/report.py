"""Write everything about a set into one self-contained HTML file: score and verdict, every run, the
arithmetic step by step, charts, nodes, attempts, host settings and environment. Also as Markdown,
CSV or JSON.

Takes set folders (finished or not) and any folder with result_*.txt or *.log files. With --all: a
page for every set of a log directory, and an index of them with the history of the scores per
system and workload.

example:
  orchestrator report MI355X_1x8x1-flux1-20260501 -o report.html
  orchestrator report results/MI355X_1x8x1/llama2_70b_lora --format md
  orchestrator report --all -o reports/
  orchestrator report --open
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_flag, add_operands, add_rules, add_text
from orchestrator.cli.command import Command
from orchestrator.errors import ExitCode, SetError, UsageError, is_full
from orchestrator.resources import user_path
from orchestrator.words import count

if TYPE_CHECKING:
    from orchestrator.report.model import Report

FORMATS = ("html", "md", "csv", "json")


def add_arguments(parser: ArgumentParser) -> None:
    text = (
        "a set (folder, id or a unique prefix of it) or a folder with the logs of one set "
        "(default: the newest set)"
    )
    add_operands(parser, "folder", "SET|DIR", "?", text, "")
    text = (
        "file to write; - is standard output (default for html: report.html; for the others "
        "standard output)"
    )
    add_text(parser, "-o --output", "FILE", text)
    parser.add_argument(
        "--format", choices=FORMATS, default="", help="default: by the ending of FILE, else html"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help=(
            "every set of a log directory (SET|DIR, default: the site's), into the folder FILE "
            "(default: reports)"
        ),
    )
    add_flag(parser, "--open", "open the page in a browser")
    add_rules(parser)
    parser.add_argument(
        "--window",
        action="store_true",
        help="more runs than needed: report the median window of consecutive runs",
    )
    parser.add_argument(
        "--site", metavar="FILE", help="site file, to find sets by name and the newest one"
    )


def run(args: Namespace) -> int:
    from orchestrator.cli.finding import folders, own_rules
    from orchestrator.report.reading import read_report
    from orchestrator.report.working import working

    if args.all:
        return _run_all(args)
    chosen = args.format or _by_ending(args.output)
    output = args.output or ("report.html" if chosen == "html" else "-")
    if args.open and (chosen != "html" or output == "-"):
        raise UsageError("--open is for a page in a file", hint="orchestrator report --open")
    rules = own_rules(args.workload, args.ruleset, args.site)
    (folder,) = folders([args.folder] if args.folder else [], args.site)
    with working(f"reading {folder}", folder):
        report = read_report(folder, ruleset=args.ruleset, window=args.window, own_rules=rules)
        content = _text(report, chosen)
    if output == "-":
        sys.stdout.buffer.write(content.encode("utf-8", "replace"))
        sys.stdout.flush()
    else:
        from orchestrator.cli.output import print_prose

        size = write_file(output, content)
        print_prose([report.score.verdict])
        print(f"written: {output} ({size / 1000:.0f} kB)", flush=True)
        if args.open:
            _open(Path(output))
    return ExitCode.OK


def _open(path: Path) -> None:
    import webbrowser

    from orchestrator.cli.output import note

    if not webbrowser.open(path.absolute().as_uri()):
        note(f"no browser was found; open {path.absolute()} yourself, or set BROWSER")


def _run_all(args: Namespace) -> int:
    from orchestrator.cli.finding import log_dir_of, need_site, own_rules
    from orchestrator.errors import OrchestratorError
    from orchestrator.evidence.sets import is_set, set_folders
    from orchestrator.report.history import IndexedSet, history_page, indexed
    from orchestrator.report.page import page
    from orchestrator.report.reading import read_report
    from orchestrator.report.working import working

    if args.format not in ("", "html"):
        raise UsageError(
            f"--all writes pages, not {args.format}",
            hint="orchestrator status --json lists all sets",
        )
    log_dir = user_path(args.folder) if args.folder else log_dir_of(need_site(args.site))
    rules = own_rules(args.workload, args.ruleset, args.site)
    folders = [folder for folder in set_folders(log_dir) if is_set(folder)]
    if not folders:
        raise UsageError(
            f"there is no set in {log_dir}",
            hint="give the log directory: orchestrator report --all DIR",
        )
    place, entries = Path(args.output or "reports"), list[IndexedSet]()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {place}: {error.strerror}", hint="give another folder with -o"
        ) from error
    with working(f"reading {count(len(folders), 'set')}"):
        for folder in folders:
            try:
                report = read_report(
                    str(folder), ruleset=args.ruleset, window=args.window, own_rules=rules
                )
            except OrchestratorError as error:
                entries.append(IndexedSet(folder.name, problem=error.message))
                continue
            write_file(place / f"{folder.name}.html", page(report))
            entries.append(indexed(folder.name, report))
    write_file(place / "index.html", history_page(str(log_dir), entries))
    print(f"{count(len(folders), 'set')}\nwritten: {place / 'index.html'}", flush=True)
    if args.open:
        _open(place / "index.html")
    return ExitCode.OK


def _by_ending(output: str) -> str:
    ending = Path(output).suffix.removeprefix(".")
    return {"htm": "html", "markdown": "md"}.get(ending, ending if ending in FORMATS else "html")


def _text(report: Report, chosen: str) -> str:
    if chosen == "html":
        from orchestrator.report.page import page

        return page(report)
    if chosen == "md":
        from orchestrator.report.markdown import markdown

        return markdown(report)
    if chosen == "csv":
        from orchestrator.report.spreadsheet import spreadsheet

        return spreadsheet([report])
    from orchestrator.cli.output import json_text
    from orchestrator.report.document import document

    return json_text("report", document(report)) + "\n"


def write_file(path: str | Path, content: str | bytes) -> int:
    """Write atomically; return the size. Raises UsageError if unwritable, SetError on a full
    disk."""
    from orchestrator.onnode.kernel.records import write_bytes

    data = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    try:
        write_bytes(Path(path), data)
    except OSError as error:
        kind = SetError if is_full(error) else UsageError
        raise kind(
            f"cannot write {path}: {error.strerror}", hint="give another file with -o"
        ) from error
    return len(data)


COMMAND = Command(
    "report",
    __doc__,
    add_arguments,
    run,
)
