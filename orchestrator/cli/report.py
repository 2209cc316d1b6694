"""Write everything about a set into one self-contained HTML file: score and verdict, every run, the arithmetic step by
step, charts, nodes, attempts, tunables and environment. Also as Markdown, CSV or JSON.

Takes set folders (finished or not) and any folder with result_*.txt or *.log files.

example:
  orchestrator report MI355X_1x8x1-flux1-20260501 -o report.html
  orchestrator report results/MI355X_1x8x1/llama2_70b_lora --format md
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_rules
from orchestrator.cli.command import Command
from orchestrator.errors import ExitCode, SetError, UsageError, is_full

if TYPE_CHECKING:
    from orchestrator.report.model import Report

FORMATS = ("html", "md", "csv", "json")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="SET|DIR",
        nargs="?",
        default="",
        help="a set (folder, id or the beginning of it) or a folder with the logs of one set (default: the newest set)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="",
        help="file to write; - is standard output (default for html: report.html; for the others standard output)",
    )
    parser.add_argument("--format", choices=FORMATS, default="", help="default: by the ending of FILE, else html")
    add_rules(parser)
    parser.add_argument(
        "--window", action="store_true", help="more runs than needed: report the median window of consecutive runs"
    )
    parser.add_argument("--site", metavar="FILE", help="site file, to find sets by name and the newest one")


def run(args: Namespace) -> int:
    from orchestrator.cli.finding import folders, own_rules
    from orchestrator.report.reading import read_report
    from orchestrator.report.working import working

    chosen = args.format or _by_ending(args.output)
    output = args.output or ("report.html" if chosen == "html" else "-")
    own = own_rules(args.workload, args.ruleset, args.site)
    (folder,) = folders([args.folder] if args.folder else [], args.site)
    with working(f"reading {folder}", folder):
        report = read_report(folder, ruleset=args.ruleset, window=args.window, own=own)
        content = _text(report, chosen).encode("utf-8", "replace")
    if output == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    else:
        _write(Path(output), content)
        print(f"{report.score.verdict}\nwritten: {output} ({len(content) / 1000:.0f} kB)")
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

        return spreadsheet(report)
    from orchestrator.report.document import document

    return document(report)


def _write(path: Path, content: bytes) -> None:
    from orchestrator.onnode.records import write_bytes

    try:
        write_bytes(path, content)
    except OSError as error:
        kind = SetError if is_full(error) else UsageError
        raise kind(f"cannot write {path}: {error.strerror}", hint="give another file with -o") from error


COMMAND = Command(
    "report",
    "one self-contained page about a set; also Markdown, CSV and JSON",
    __doc__,
    add_arguments,
    run,
)
