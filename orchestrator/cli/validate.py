"""Check site files, systems, workloads, tuning profiles and other documents: every problem at once,
with file, line and key. A folder stands for all documents in it, in its shared/, workloads/ and
workloads/preparations/, as --systems-dir takes it.

Without FILE, check the site file that other commands would take: --site FILE, $ORCHESTRATOR_SITE,
./site.yaml or ~/.config/orchestrator/site.yaml.

Exit code: 0 all are valid, 2 a document is not.

example:
  orchestrator validate
  orchestrator validate mine/MI325X_04x08x32.yaml mine/workloads/hello.yaml
  orchestrator validate mine
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.cli.arguments import add_json, add_operands, add_site, add_systems_dir
from orchestrator.cli.command import Command
from orchestrator.cli.finding import catalogue_of, need_site
from orchestrator.cli.output import note, print_json
from orchestrator.errors import DescriptorError, ExitCode, UsageError


def add_arguments(parser: ArgumentParser) -> None:
    text = "a YAML file of any kind, or a folder of them (default: the site file)"
    add_operands(parser, "files", "FILE|DIR", "*", text)
    add_systems_dir(parser)
    add_site(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.mllog.rounds import ruleset_problem
    from orchestrator.model.source import problems_with_place
    from orchestrator.model.validation import validate_file
    from orchestrator.tuning.profile import profile_problem

    problems: list[Any] = []
    fine = []
    given = [Path(name) for name in args.files] or [need_site(args.site)]
    known = catalogue_of(args, *(path for path in given if path.is_dir()))
    others = _other_kinds(known.dirs)
    for file in (file for path in given for file in _files_of(path)):
        try:
            checked = validate_file(known, file, ruleset_problem, profile_problem, others)
            fine.append((str(file), *checked))
        except DescriptorError as error:
            problems += error.problems
    if args.json:
        print_json(
            "systems-validate",
            {
                "problems": [str(problem) for problem in problems],
                "files": [
                    {"file": name, "kind": kind, "warnings": warnings}
                    for name, kind, warnings in fine
                ],
            },
        )
    else:
        _print_valid(fine)
    if problems:
        if args.json:
            return ExitCode.BAD_INPUT
        raise problems_with_place(problems, "orchestrator docs descriptors")
    return ExitCode.OK


def _other_kinds(systems_dirs: Sequence[Path]) -> dict[str, Callable[[Path], object]]:
    from orchestrator.prepare.documents import load_preparation
    from orchestrator.tuning.profile import load_profile, read_choice

    return {
        "preparation": lambda path: load_preparation(str(path.absolute()), systems_dirs),
        "tuning": lambda path: load_profile(str(path.absolute())),
        "tuning_choice": read_choice,
    }


def _files_of(path: Path) -> list[Path]:
    """Raises UsageError for an empty folder."""
    if not path.is_dir():
        return [path]
    files = [
        file
        for place in (".", "shared", "workloads", "workloads/preparations")
        for file in sorted((path / place).glob("*.yaml"))
    ]
    if not files:
        raise UsageError(
            f"{path}: there is no document in this folder, in shared/ or in workloads/ (*.yaml)"
        )
    return files


def _print_valid(fine: Sequence[tuple[str, str, list[str]]]) -> None:
    for name, kind, warnings in fine:
        print(f"{name}: {kind}, fine")
        for warning in warnings:
            note(f"{name}: warning: {warning}")


COMMAND = Command(
    "validate",
    __doc__,
    add_arguments,
    run,
)
