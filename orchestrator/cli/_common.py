"""What several commands share: finding the site and the set, tables for terminals and for pipes, JSON."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.evidence.sets import RunSet
    from orchestrator.model import Entry, Site
    from orchestrator.scheduler import Scheduler

SITE_VARIABLE = "ORCHESTRATOR_SITE"
SITE_HELP = "site file (default: $ORCHESTRATOR_SITE, then ./site.yaml, then ~/.config/orchestrator/site.yaml)"


# ---- arguments ----


def add_site(parser: ArgumentParser) -> None:
    parser.add_argument("--site", metavar="FILE", help=SITE_HELP)


def add_set(parser: ArgumentParser) -> None:
    """SET and --site, for commands about a set that exists."""
    parser.add_argument(
        "set",
        metavar="SET",
        nargs="?",
        default="",
        help="a set's folder, its id, or the beginning of it (default: the newest set)",
    )
    add_site(parser)


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_entry(parser: ArgumentParser) -> None:
    """What to run, for commands that make a set."""
    parser.add_argument("system", metavar="SYSTEM", help="a name of `orchestrator systems`, or a YAML file")
    parser.add_argument("workload", metavar="WORKLOAD", help="a workload of that system")
    add_site(parser)
    parser.add_argument("--nexp", metavar="N", type=positive, help="number of runs (default: what the rules require)")
    parser.add_argument("--round", metavar="R", help="round, such as 6.0 (default: the newest the system has)")
    parser.add_argument(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment,
        help="a variable of the runs; wins over every document; may be repeated",
    )
    from orchestrator.cli._allocation import add_allocation

    add_allocation(parser)


def load_asked(args: Namespace) -> Entry:
    """The entry that the arguments of add_entry() describe; its warnings go to standard error."""
    from orchestrator.cli._allocation import with_allocation
    from orchestrator.model import load_entry

    entry = load_entry(args.system, args.workload, round=args.round, site=need_site(args.site), env=dict(args.env))
    for warning in entry.warnings:
        note(f"warning: {warning}")
    return with_allocation(entry, args)


def positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return value


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


# ---- site and set ----


def find_site(given: str | None) -> Path | None:
    """--site, $ORCHESTRATOR_SITE, ./site.yaml, ~/.config/orchestrator/site.yaml: the first that is there; None without.

    Raises UsageError when one that was named does not exist.
    """
    for named, by in ((given, "--site"), (os.environ.get(SITE_VARIABLE), SITE_VARIABLE)):
        if named:
            path = Path(named).expanduser()
            if not path.is_file():
                raise UsageError(f"{by}: there is no file {path}", hint="docs/commands.md tells what a site file is")
            return path
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "orchestrator" / "site.yaml"
    return next((path for path in (Path("site.yaml"), config) if path.is_file()), None)


def need_site(given: str | None) -> Path:
    """find_site(), or a UsageError that says where one was looked for."""
    path = find_site(given)
    if path is None:
        raise UsageError(
            "there is no site file: --site, $ORCHESTRATOR_SITE, ./site.yaml and "
            "~/.config/orchestrator/site.yaml were tried",
            hint="write one: `scheduler: slurm` and `log_dir: /shared/results` are enough to begin with",
        )
    return path


def site_log_dir(site: Site) -> Path:
    if site.log_dir is None:
        raise UsageError("the site file gives no log_dir", hint="add `log_dir: /shared/results`")
    return Path(site.log_dir)


def log_dir_of(path: Path) -> Path:
    """The log directory that the site file at `path` names; all that a command needs which only looks at sets.

    The file is checked as a whole (which takes a quarter of a second for the models) only when that key is not usable.
    """
    import yaml

    try:
        document = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, yaml.YAMLError):
        document = None
    found = document.get("log_dir") if isinstance(document, dict) else None
    if isinstance(found, str) and found.startswith("/"):
        return Path(found)
    from orchestrator.model import load_site

    return site_log_dir(load_site(path))


def chosen_set(args: Namespace) -> RunSet:
    """The set that SET and --site mean. The site is not even read when SET is a path."""
    from orchestrator.evidence.sets import open_set
    from orchestrator.runset.find import find_set

    if args.set and (Path(args.set).expanduser() / "set.json").exists():
        return open_set(find_set(args.set, None))
    site = find_site(args.site)
    return open_set(find_set(args.set, log_dir_of(site) if site else None))


def scheduler_of(run_set: RunSet) -> Scheduler:
    from orchestrator.scheduler import open_scheduler

    return open_scheduler(run_set.record.scheduler)


# ---- output ----


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def note(text: str) -> None:
    """A remark that is no result: to standard error, so that pipes get results only."""
    with suppress(OSError):  # a remark that nobody can read must not end a command that has submitted a job
        print(text, file=sys.stderr)


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table: drawn with rich on a terminal, aligned columns otherwise. `right` names the columns to align right."""
    if is_terminal():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in header:
            table.add_column(name, justify="right" if name in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    for line in aligned(header, rows, right):
        print(line)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """The lines of a table in aligned columns, two spaces apart."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def one(line: list[str]) -> str:
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, header, strict=True)
        )
        return "  ".join(cells).rstrip()

    return [one(line) for line in lines]


def duration(total_s: float) -> str:
    """`0.8s`, `12s`, `3m20s`, `5h07m`, `2d04h`."""
    total = int(total_s)
    if total < 10:
        return f"{total_s:.1f}s"
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02}s"
    if total < 86_400:
        return f"{total // 3600}h{total % 3600 // 60:02}m"
    return f"{total // 86_400}d{total % 86_400 // 3600:02}h"


def minutes_text(minutes: float | None) -> str:
    """Minutes as the published tables give them, with more digits where runs take seconds."""
    if minutes is None:
        return "-"
    return f"{minutes:.5f}" if minutes < 0.1 else f"{minutes:.3f}" if minutes < 10 else f"{minutes:.2f}"
