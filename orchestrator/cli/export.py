"""Write the runs of finished sets for other programs, one row per run: CSV, Parquet, or MLflow's
tracking. --format prometheus: the state of all sets as metrics, for the textfile collector of
Prometheus' node exporter.

Without SET: the complete sets of the site's log directory. With SET: these, finished or not,
folders of plain logs included. The columns and their units: orchestrator docs runs. Parquet and
MLflow need the extra `export` (pip install '.[export]').

example:
  orchestrator export -o runs.csv
  orchestrator export -o runs.parquet
  orchestrator export --format mlflow -o http://mlflow.example.org:5000
  orchestrator export --format prometheus -o /var/lib/node-exporter/orchestrator.prom --quiet
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    add_choice,
    add_json,
    add_operands,
    add_rules,
    add_site,
    add_text,
)
from orchestrator.cli.command import Command
from orchestrator.cli.output import note, print_json
from orchestrator.errors import ExitCode, OrchestratorError, SetError, UsageError
from orchestrator.words import count, quoted

if TYPE_CHECKING:
    from orchestrator.report.model import Report

FORMATS = ("csv", "parquet", "mlflow", "prometheus")


def add_arguments(parser: ArgumentParser) -> None:
    text = "sets or folders of logs (default: all complete sets of the site)"
    add_operands(parser, "sets", "SET|DIR", "*", text)
    add_text(
        parser,
        "-o --output",
        "FILE|ADDRESS",
        "file to write (default for csv and prometheus: standard output), or the address of MLflow "
        "(default: $MLFLOW_TRACKING_URI)",
    )
    add_choice(parser, "--format", FORMATS, "default: by the ending of FILE, else csv")
    add_rules(parser)
    add_site(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    if args.format == "prometheus":
        if args.sets or args.ruleset or args.workload:
            raise UsageError(
                "--format prometheus writes the state of all sets: it takes no SET and no rules"
            )
        from orchestrator.cli import prometheus

        return prometheus.export(args)
    chosen = args.format or ("parquet" if args.output.endswith(".parquet") else "csv")
    output = args.output or (
        os.environ.get("MLFLOW_TRACKING_URI", "") if chosen == "mlflow" else "-"
    )
    if output in ("", "-") and chosen != "csv":
        target = "the address of MLflow" if chosen == "mlflow" else "a file"
        raise UsageError(
            f"--format {chosen} needs {target}",
            hint=f"orchestrator export --format {quoted(chosen)} -o ...",
        )
    if output == "-" and args.json:
        raise UsageError(
            "--json reports the written files, and the runs go to standard output",
            hint="add -o runs.csv",
        )
    reports, left_out = _read(args)
    written = _write(chosen, output, reports)
    if args.json:
        members = {
            "format": chosen,
            "output": output,
            "sets": len(reports),
            "runs": written,
            "left_out": left_out,
        }
        print_json("export", members)
    elif output != "-":
        print(f"{count(len(reports), 'set')}, {count(written, 'run')}\nwritten: {output}")
    return ExitCode.OK


def _read(args: Namespace) -> tuple[list[Report], list[dict[str, str]]]:
    """Raises SetError without a usable set."""
    from orchestrator.cli.finding import folders, own_rules
    from orchestrator.mllog.rounds import chosen_round
    from orchestrator.mllog.shipped import OWN
    from orchestrator.report.reading import read_report
    from orchestrator.report.working import working

    rules = own_rules(args.workload, args.ruleset, args.site)
    if args.ruleset not in ("", OWN):
        chosen_round(args.ruleset)
    chosen, left_out = (folders(args.sets, args.site), []) if args.sets else _complete(args)
    reports = []
    with working(f"reading {count(len(chosen), 'set')}"):
        for folder in chosen:
            try:
                reports.append(read_report(folder, ruleset=args.ruleset, own_rules=rules))
            except OrchestratorError as error:
                left_out.append({"set": Path(folder).name, "why": error.message})
    for skipped in left_out:
        note(f"left out: {skipped['set']}: {skipped['why']}")
    if not reports:
        raise SetError(
            "there is no set to export",
            hint="orchestrator status --all shows the sets and their states",
        )
    return reports, left_out


def _complete(args: Namespace) -> tuple[list[str], list[dict[str, str]]]:
    """Return complete sets, oldest first, and the others' states."""
    from orchestrator.cli.status import site_sets
    from orchestrator.evidence.sets import SetEvidence, set_folders

    complete, others = [], []
    for folder in reversed(set_folders(site_sets(args))):
        files = SetEvidence(folder)
        if not files.is_one:
            continue
        if not files.record:
            why = "damaged"
        elif not (files.job and files.settled):
            why = "not finished"
        else:
            added = files.added_runs
            why = f"{count(added, 'added run')} not started" if added else files.job.state
        if why == "complete":
            complete.append(str(folder))
        else:
            others.append({"set": folder.name, "why": why})
    return complete, others


def _write(chosen: str, output: str, reports: list[Report]) -> int:
    """Return the number of runs (for MLflow: of new runs)."""
    if chosen == "mlflow":
        from orchestrator.report.export import Tracking

        tracking = Tracking(output)
        return sum(tracking.put(report) for report in reports)
    from orchestrator.cli.report import write_file

    if chosen == "parquet":
        from orchestrator.report.export import parquet

        write_file(output, parquet(reports))
    else:
        from orchestrator.report.spreadsheet import spreadsheet

        text = spreadsheet(reports)
        if output == "-":
            sys.stdout.buffer.write(text.encode("utf-8", "replace"))
            sys.stdout.flush()
        else:
            write_file(output, text)
    return sum(len(report.runs) for report in reports)


COMMAND = Command(
    "export",
    __doc__,
    add_arguments,
    run,
)
