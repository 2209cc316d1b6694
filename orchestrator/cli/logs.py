"""Show or follow the logs of a set's runs: by default the newest attempt of each active run, of the
node that logs for all.

With --follow and no --run, the view continues with the next run, until the set ends.

example:
  orchestrator logs                          # the newest attempt of the newest set
  orchestrator logs SET --run 3 --node 5     # node of rank 5 in run 3; a node's name does as well
  orchestrator logs SET -f                   # follow
  orchestrator logs SET --job                # the output of the job itself
"""

from __future__ import annotations

import itertools
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_flag, add_number, add_set, add_text
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set, scheduler_of
from orchestrator.cli.output import Shown, note, warn
from orchestrator.errors import ExitCode, UsageError
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.evidence.sets import RunSet
    from orchestrator.onnode.kernel.walk import FilesInside


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser)
    add_number(parser, "--run", "I", "run (default: the current run, else the last)")
    add_number(parser, "--attempt", "K", "attempt of the run (default: the last)")
    add_text(parser, "--node", "RANK|NAME", "node (default: the logging node, mostly rank 0)")
    add_flag(parser, "-f --follow", "show new lines, until the run or the set ends")
    add_flag(parser, "--job", "the job's own output instead of a run's")


def run(args: Namespace) -> int:
    from orchestrator.evidence import logs
    from orchestrator.evidence.files import Findings

    run_set = chosen_set(args)
    if args.follow:
        return _follow(run_set, args)
    findings = Findings(run_set.layout.root)
    paths = (
        [logs.job_log(run_set.layout, findings)]
        if args.job
        else logs.run_logs(run_set, args.run, args.attempt, args.node)
    )
    for finding in findings:
        warn(str(finding))
    for path in paths:
        note(f"==> {path} <==")
        if not _copy(path, findings.inside):
            for line in logs.empty_lines(run_set, path):
                note(line)
    return ExitCode.OK


def _copy(path: Path, files: FilesInside) -> bool:
    """Return whether the log has bytes. Raises UsageError if it cannot be read."""
    from orchestrator.evidence.logs import content

    pieces = content(path, files)
    try:
        first = next(pieces, b"")
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no log {path} (yet)", hint="orchestrator status shows the state of the set"
        ) from error
    except OSError as error:
        raise UsageError(
            f"{quoted(path)} cannot be read: {error.strerror or error}",
            hint=f"ls -ld {quoted(path)}",
        ) from error
    write = _writer()
    for piece in itertools.chain([first], pieces):
        write(piece)
    return bool(first)


def _writer() -> Callable[[bytes], object]:
    """Write bytes unchanged, but no control characters to a terminal."""
    if not sys.stdout.isatty():
        return sys.stdout.buffer.write
    shown = Shown()
    return lambda piece: sys.stdout.write(shown.text(piece))


def _follow(run_set: RunSet, args: Namespace) -> int:
    from orchestrator.evidence import logs
    from orchestrator.evidence.files import Findings

    shown, findings, warned = None, Findings(run_set.layout.root), 0
    write = _writer()

    def warn_of_new() -> None:
        nonlocal warned
        for finding in findings[warned:]:
            warn(str(finding))
        warned = len(findings)

    try:
        for path, chunk in logs.follow(
            run_set,
            scheduler_of(run_set),
            run=args.run,
            attempt=args.attempt,
            node=args.node,
            job=args.job,
            findings=findings,
        ):
            warn_of_new()
            if path != shown:
                note(f"==> {path} <==")
                shown = path
            write(chunk)
            sys.stdout.flush()
        warn_of_new()
    except KeyboardInterrupt:
        note("")
        return ExitCode.INTERRUPTED
    return ExitCode.OK


COMMAND = Command(
    "logs",
    __doc__,
    add_arguments,
    run,
)
