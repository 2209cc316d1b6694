"""Prepare a workload's data with the published steps in its container; or check the data.

Finished steps are skipped and dead ones run again, on any machine. Before any download the image
is inspected (`images inspect`), and the free space is compared with the published sizes. If the
published scripts would delete existing files, these are named and nothing starts. The Hugging Face
token (llama2_70b_lora of 5.1 and 6.0) comes from --hf-token-file or from HF_TOKEN; it goes to the
step through standard input and is in no argument, log or file.
Exit code: 0 all data are there, 1 a step failed or a part is missing, 2 unusable input, 3 the
engine did not answer, 5 another process is preparing the same data, here or on another machine.

example:
  orchestrator prepare llama2_70b_lora --site site.yaml --hf-token-file ~/.hf_token
  orchestrator prepare flux1 --dry-run          # the commands
  orchestrator prepare llama31_8b --check       # present and missing parts
  orchestrator prepare llama2_70b_lora --round 5.1 --dry-run
"""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    add_engine,
    add_flag,
    add_json,
    add_option,
    add_override,
    add_site,
    add_systems_dir,
    add_text,
)
from orchestrator.cli.command import Command
from orchestrator.cli.finding import need_site, site_log_dir
from orchestrator.cli.output import Shown, note, print_json, print_parts
from orchestrator.errors import ExitCode, InputError, OrchestratorError
from orchestrator.views.parts import Table
from orchestrator.words import count, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orchestrator.model import Site
    from orchestrator.prepare.documents import StepPart
    from orchestrator.prepare.plan import Plan
    from orchestrator.prepare.sizes import TreePart


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "workload", metavar="WORKLOAD", help="llama2_70b_lora, llama31_8b, flux1, or a YAML file"
    )
    add_site(parser)
    add_override(parser)
    add_systems_dir(parser)
    add_option(
        parser, "--round", "R", "round, such as 6.0 (default: the newest with published steps)"
    )
    add_flag(parser, "--check", "change nothing: check which files exist, and their sizes")
    add_flag(parser, "--dry-run", "change nothing: print the commands")
    parser.add_argument(
        "--with",
        dest="extra",
        metavar="STEP",
        action="append",
        default=[],
        help="also run this optional step (flux1: reclaim); may be repeated",
    )
    add_option(parser, "--hf-token-file", "FILE", "file with the token, readable by you alone")
    add_flag(parser, "--force-space", "continue although the space is too small")
    add_text(parser, "--image", "REF", "image of the steps (default: the workload's)")
    add_engine(parser)
    add_flag(parser, "--verbose", "show the steps' output on standard error")
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.container.local import reachable
    from orchestrator.model import load_site
    from orchestrator.prepare.plan import make_plan

    site = load_site(need_site(args.site), overrides=args.override)
    plan = make_plan(
        args.workload,
        site,
        round=args.round,
        image=args.image,
        extra=args.extra,
        systems_dirs=args.systems_dir,
    )
    if args.check:
        return _check(plan, args)
    if args.dry_run:
        return _show(plan, args)
    with reachable(args.engine, site.container.engine, site.container.command) as address:
        return _prepare(plan, args, site, address)


# ---- --check ----


def _check(plan: Plan, args: Namespace) -> int:
    from orchestrator.prepare.sizes import check_tree

    parts = check_tree(plan)
    wrong = [part for part in parts if part.state != "ok"]
    if args.json:
        print_json(
            "prepare-check",
            {
                "workload": plan.workload,
                "round": plan.round,
                "complete": not wrong,
                "folders": {name: str(path) for name, path in plan.folders.items()},
                "parts": [part.to_json() for part in parts],
            },
        )
    else:
        print_parts([_parts_table(parts)])
        summary = f"{count(len(parts), 'part')} in place"
        if wrong:
            differ = "differs" if len(wrong) == 1 else "differ"
            summary = (
                f"{len(wrong)} of {count(len(parts), 'part')} {differ} from the published data"
            )
        print(f"{plan.workload} {plan.round}: {summary}")
        if wrong:
            fill = shlex.join(["orchestrator", *(word for word in args.typed if word != "--check")])
            note(f"hint: {fill} downloads the missing files")
    return ExitCode.NO_SCORE if wrong else ExitCode.OK


def _parts_table(parts: Sequence[TreePart]) -> Table:
    return Table(
        "Parts of the data",
        ("path", "state", "size", "published"),
        [_part_row(part) for part in parts],
        numeric=(2, 3),
        states=(1,),
        remark="what",
        below=[part.part.what for part in parts],
    )


def _part_row(tree_part: TreePart) -> tuple[str, ...]:
    from orchestrator.prepare.sizes import gigabytes

    expected = tree_part.part.bytes
    size = gigabytes(tree_part.bytes) if tree_part.bytes >= 0 else "-"
    published = gigabytes(expected) if expected else "-"
    return str(tree_part.path), tree_part.state, size, published


# ---- --dry-run ----


def _show(plan: Plan, args: Namespace) -> int:
    from orchestrator.prepare.sizes import gigabytes, spaces
    from orchestrator.prepare.state import outlook
    from orchestrator.prepare.step import command_line

    reports = outlook(plan)
    commands = [command_line(plan, report.step, again=report.again) for report in reports]
    file_systems = spaces(plan)
    if args.json:
        print_json(
            "prepare-plan",
            {
                "workload": plan.workload,
                "round": plan.round,
                "image": plan.image,
                "source": plan.part.source,
                "space": [space.to_json() for space in file_systems],
                "steps": [
                    {**report.to_json(), "command": command}
                    for report, command in zip(reports, commands, strict=True)
                ],
            },
        )
        return ExitCode.OK
    print(f"# {plan.workload} {plan.round}, from: {plan.part.source}")
    for space in file_systems:
        print(f"# {space}{'' if space.enough else ' (not enough)'}")
    if plan.part.engine_bytes:
        print(f"# the engine's storage: {gigabytes(plan.part.engine_bytes)} are needed there, too")
    for report, command in zip(reports, commands, strict=True):
        reason = report.why if report.due else "done, is skipped"
        print(f"\n# {report.step.name}: {report.step.what} ({reason})")
        for path in report.in_the_way:
            print(f"# refused while this is there: {path}")
        print(command)
    total = sum(part.bytes for part in plan.part.space)
    note(f"needs {gigabytes(total)} in all; nothing was changed")
    return ExitCode.OK


# ---- the preparation ----


def _prepare(plan: Plan, args: Namespace, site: Site, address: str) -> int:
    from orchestrator.prepare.secret import read_secret
    from orchestrator.prepare.state import outlook
    from orchestrator.prepare.step import secrets_needed
    from orchestrator.prepare.work import prepare, refuse_in_the_way

    before = outlook(plan)
    refuse_in_the_way(before)
    due = [report.step for report in before if report.due]
    secrets = {name: read_secret(name, args.hf_token_file) for name in secrets_needed(due)}
    if due:
        _check_space(plan, _engine_storage(plan, address), force=args.force_space)
        _inspect(plan, due, site, args.systems_dir, address)
    output = _print_output() if args.verbose else _ignore_output
    reports = prepare(plan, secrets, address=address, progress=note, output=output)
    failed = [report for report in reports if report.due]
    if args.json:
        print_json(
            "prepare",
            {
                "workload": plan.workload,
                "round": plan.round,
                "complete": not failed,
                "state_folder": str(plan.state_folder),
                "steps": [report.to_json() for report in reports],
            },
        )
    elif failed:
        first = failed[0]
        print(f"{plan.workload}: {first.step.name} is not done: {first.why}")
        log = plan.log_file(first.step)
        note(f"hint: check {log}; the same command continues from there")
    else:
        print(f"{plan.workload}: {count(len(reports), 'step')} done")
        note(
            f"hint: orchestrator prepare {quoted(plan.workload)} --check compares with the "
            "published tree"
        )
    return ExitCode.NO_SCORE if failed else ExitCode.OK


def _inspect(
    plan: Plan, due: list[StepPart], site: Site, systems_dirs: list[Path], address: str
) -> None:
    """Warn, before hours of downloads, if the image does not fit the steps, or the round's
    entries."""
    from orchestrator.container.local import engine
    from orchestrator.inspection.preparing import StepCommand, inspect_for_preparation
    from orchestrator.model import Catalogue, load_entry
    from orchestrator.onnode.kernel.world import now_ms

    if not site.log_dir:
        return
    steps = [
        StepCommand(
            step.name, step.run, plan.workdir(step), tuple(inside for _, inside in plan.binds(step))
        )
        for step in due
    ]
    folder = site_log_dir(site).parent / "images"
    try:
        entries = [
            load_entry(
                system.name, plan.workload, round=plan.round, site=site, systems_dirs=systems_dirs
            )
            for system in Catalogue(systems_dirs).systems()
            if plan.round in system.workloads.get(plan.workload, {})
        ]
        entries = [entry for entry in entries if entry.image == plan.image]
        if not entries:
            return
        with engine(address, timeout_s=600) as client:
            problems = inspect_for_preparation(
                client, plan.image, steps, entries, folder, now_ms=now_ms(), progress=note
            )
    except (OrchestratorError, OSError) as error:
        note(f"the image is not inspected: {error}")
        return
    for text in dict.fromkeys(problems.values()):
        first, *others = [name for name, its in problems.items() if its == text]
        more = f" (and {len(others)} more)" if others else ""
        note(f"warning: {first}{more}: {text}")


def _print_output() -> Callable[[bytes], None]:
    shown = Shown()

    def show(piece: bytes) -> None:
        sys.stderr.write(shown.text(piece))
        sys.stderr.flush()

    return show


def _ignore_output(piece: bytes) -> None:
    """The log has it."""


def _engine_storage(plan: Plan, address: str) -> Path | None:
    from orchestrator.container.local import engine, storage_folder

    if not plan.part.engine_bytes:
        return None
    with engine(address) as client:
        return storage_folder(client, address)


def _check_space(plan: Plan, storage: Path | None, *, force: bool) -> None:
    from orchestrator.prepare.sizes import spaces

    small = [space for space in spaces(plan, storage) if not space.enough]
    if small and not force:
        raise InputError(
            "not enough space: " + "; ".join(map(str, small)),
            hint="name a larger file system in the site's data section, or give the engine a "
            "larger storage; --force-space tries all the same",
        )
    for space in small:
        note(f"warning: {space}")


COMMAND = Command(
    "prepare",
    __doc__,
    add_arguments,
    run,
)
