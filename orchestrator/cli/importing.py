"""`systems import`: turn a published config, in a file or an image, into documents."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_engine, add_flag, add_option, add_text, positive
from orchestrator.cli.finding import find_site
from orchestrator.cli.output import note, print_json, print_parts
from orchestrator.errors import ExitCode, UsageError
from orchestrator.resources import user_path
from orchestrator.views.parts import Table
from orchestrator.words import count, quoted

if TYPE_CHECKING:
    from orchestrator.importing.config import Checked


def add_import(parser: ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="FILE|IMAGE", help="a published config_*.sh, or an image that has it"
    )
    add_option(parser, "--round", "R", "round of the config, such as 7.0", required=True)
    add_option(parser, "--as", "NAME", "name of the system (default: the config's)", dest="name")
    add_option(parser, "--workload", "W", "default: the one whose variables are most alike")
    add_text(
        parser, "--image", "REF", "the new round's image (default: the image the config is from)"
    )
    add_text(parser, "--ruleset", "ROUND", "rules of a new round (default: its own, such as 7.0.0)")
    for name, what in (
        ("--nodes", "number of nodes"),
        ("--gpus-per-node", "GPUs of each node"),
        ("--micro-batch", "samples per GPU and step"),
        ("--global-batch", "samples per step of the optimizer"),
    ):
        text = f"{what} (default: as in the config)"
        parser.add_argument(name, metavar="N", type=positive, default=0, help=text)
    add_text(parser, "--accelerator", "GPU", "a name such as MI325X (default: as in the config)")
    add_option(parser, "--config", "NAME", "of several configs in an image: this one", dest="file")
    parser.add_argument(
        "--code-dir",
        metavar="DIR",
        default="/workspace/code",
        help="folder of the configs in the image (default: /workspace/code)",
    )
    add_engine(parser)
    add_flag(
        parser,
        "--execute",
        "source a config with more than plain assignments: its author's code runs as you",
    )
    add_flag(parser, "--dry-run", "write nothing: print the documents")
    add_option(
        parser,
        "-o --output",
        "DIR",
        "folder of the documents (default: ./mine)",
        type=Path,
    )


def run_import(args: Namespace, dirs: list[Path]) -> ExitCode:
    """`dirs`: further folders with documents."""
    path = user_path(args.config)
    if path.is_file():
        return _import(args, path, dirs, args.image)
    if "/" not in args.config.split(":")[0] and args.config.endswith(".sh"):
        raise UsageError(f"there is no file {path}")
    from tempfile import TemporaryDirectory

    from orchestrator.container.code import copy_code
    from orchestrator.container.local import reachable
    from orchestrator.model import load_site

    site = find_site(args.site)
    container = load_site(site).container if site else None
    engine, command = (container.engine, container.command) if container else ("", None)
    with TemporaryDirectory(prefix="orchestrator-import-") as place:
        with reachable(args.engine, engine, command) as address:
            target = Path(place) / "code"
            copy_code(args.config, args.code_dir, target, address=address)
        return _import(args, _config_in(target, args), dirs, args.image or args.config)


def _config_in(folder: Path, args: Namespace) -> Path:
    """Raises UsageError unless there is a single match."""
    configs = sorted(path for path in folder.glob("config_*.sh") if "common" not in path.name)
    chosen = [path for path in configs if not args.file or path.name == args.file]
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(path.name for path in configs) or "no config_*.sh"
    raise UsageError(
        f"{args.config} has in {args.code_dir}: {there}", hint="--config NAME chooses one"
    )


def _import(args: Namespace, path: Path, dirs: list[Path], image: str) -> ExitCode:
    from orchestrator.importing.config import import_config
    from orchestrator.importing.split import ImportOptions
    from orchestrator.importing.writing import write
    from orchestrator.mllog.rounds import ruleset_problem

    output = args.output or Path("mine")
    given = ImportOptions(
        _round(args.round),
        args.workload or "",
        args.name or "",
        args.accelerator,
        args.nodes,
        args.gpus_per_node,
        args.micro_batch,
        args.global_batch,
    )
    checked = import_config(
        path,
        given,
        [output, *dirs],
        image=image,
        ruleset=args.ruleset,
        ruleset_problem=ruleset_problem,
        execute=args.execute,
    )
    written = [] if args.dry_run else write(output, checked.documents)
    if args.json:
        print_json("systems-import", _members(checked, written))
    else:
        _print(checked, written, output)
    return ExitCode.OK


def _round(text: str) -> str:
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise UsageError(f"--round {text!r} is not a round; accepted: two numbers such as 7.0")
    return text


def _members(checked: Checked, written: list[Path]) -> dict[str, object]:
    imported = checked.imported
    return {
        "system": checked.documents.system,
        "workload": imported.workload,
        "round": imported.given.round,
        "nearest_round": imported.base,
        "new_round": imported.new_round,
        "executed": imported.evaluation.run,
        "variables": [
            {
                "name": row.name,
                "known": row.known,
                "value": None if row.value is None else str(row.value),
                "part": row.part,
                "why": row.why,
            }
            for row in imported.placed
        ],
        "differences": [
            {"name": row.name, "config": row.config, "entry": row.entry, "why": row.why}
            for row in checked.differences
        ],
        "documents": [
            {"path": name, "text": text} for name, text in checked.documents.files.items()
        ],
        "written": [str(path) for path in written],
        "notes": list(checked.documents.notes),
    }


def _print(checked: Checked, written: list[Path], output: Path) -> None:
    imported, made = checked.imported, checked.documents
    how = "executed" if imported.evaluation.run else "read, not executed"
    print(
        f"{imported.evaluation.name} ({how}): {count(len(imported.evaluation.env), 'variable')}, "
        f"{imported.workload}, nearest to round {imported.base}"
    )
    if imported.placed:
        rows = [
            (
                row.name,
                row.known or "-",
                "-" if row.value is None else str(row.value),
                row.part,
            )
            for row in imported.placed
        ]
        table = Table(
            "Variables",
            ("variable", "known", "here", "goes to"),
            rows,
            remark="why",
            below=[row.why for row in imported.placed],
        )
        print_parts([table])
    else:
        print(f"no variable differs from round {imported.base}")
    for text in made.notes:
        note(f"note: {text}")
    if not written:
        for name, text in made.files.items():
            print(f"\n# {output / name}\n{text}", end="")
        return
    for path in written:
        print(path)
    note(f"next: orchestrator validate {quoted(output)}")
