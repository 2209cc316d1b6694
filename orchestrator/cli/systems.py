"""List, show, compare and check systems and the other descriptors.

  orchestrator systems [--gpu G --workload W ...]             the catalogue, or what fits
  orchestrator systems show NAME [--workload W --why]         one system, alone or composed
  orchestrator systems diff A B                               A, B: SYSTEM[:WORKLOAD[:ROUND]]
  orchestrator systems new NAME --workload W ...              write a commented descriptor
  orchestrator systems import FILE|IMAGE --round R            a published config as documents
  orchestrator systems schema system|workload|site|outputs    JSON Schema of documents, or of --json

Example:

  orchestrator systems show MI325X_08x08x32 --workload flux1 --why
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from orchestrator.cli.arguments import (
    SITE_HELP,
    add_environment,
    add_flag,
    add_number,
    add_option,
    add_systems_dir,
    positive,
)
from orchestrator.cli.command import Command
from orchestrator.cli.finding import catalogue_of, find_site, print_warnings, systems_folders
from orchestrator.cli.output import note, print_json, print_parts, print_prose
from orchestrator.errors import ExitCode, UsageError
from orchestrator.resources import data_dir, generated_file
from orchestrator.views.parts import FactList, Table
from orchestrator.words import quoted

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.model import Catalogue, Entry, System
    from orchestrator.model.documents import SystemRound
    from orchestrator.model.entry import Origin
    from orchestrator.published import PublishedResult

ENV_FROM = {"config": "published config", "logs": "logs, the rest assumed", "assumed": "assumed"}
"""`env_from` of a descriptor -> text for people."""


def add_arguments(parser: ArgumentParser) -> None:
    _add_common(parser)
    _add_filters(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    show = _action(actions, "show", "one system, or its composed result for a workload")
    show.add_argument(
        "name", metavar="NAME", help="a name of `orchestrator systems`, or a YAML file"
    )
    add_option(show, "--workload", "W", "compose the system with this workload")
    add_option(show, "--round", "R", "default: the newest the system has")
    add_environment(show)
    add_flag(show, "--why", "the source of each value")
    diff = _action(actions, "diff", "differences between two systems or two rounds")
    diff.add_argument("left", metavar="A", help="SYSTEM[:WORKLOAD[:ROUND]]")
    diff.add_argument("right", metavar="B", help="SYSTEM[:WORKLOAD[:ROUND]]")
    _add_new(_action(actions, "new", "write a commented descriptor"))
    from orchestrator.cli.importing import add_import

    add_import(_action(actions, "import", "a published config as documents"))
    schema = _action(
        actions, "schema", "JSON Schema of a kind of descriptor, or of the output of --json"
    )
    schema.add_argument(
        "kind",
        choices=("system", "workload", "site", "outputs"),
        help="kind of descriptor, or `outputs`",
    )


def _add_filters(parser: ArgumentParser) -> None:
    # Named apart: an action's own --workload and --round would overwrite them with its defaults.
    for option, metavar, text in (
        ("--gpu", "GPU", "with this accelerator, such as MI355X"),
        ("--workload", "W", "that can run this workload"),
        ("--round", "R", "in this round"),
        (
            "--submitter",
            "NAME",
            "that this submitter published; a prefix of the name is enough",
        ),
    ):
        names = [option, "--accelerator"] if option == "--gpu" else [option]
        parser.add_argument(
            *names, dest=f"only_{option[2:]}", metavar=metavar, default="", help=f"list: {text}"
        )
    parser.add_argument(
        "--nodes", dest="only_nodes", metavar="N", type=positive, help="list: with so many nodes"
    )


def _action(actions: Any, name: str, text: str) -> ArgumentParser:
    parser: ArgumentParser = actions.add_parser(
        name, help=text, description=text, allow_abbrev=False
    )
    # SUPPRESS: an action's default must not undo an option before the action.
    _add_common(parser, json=SUPPRESS, site=SUPPRESS, dirs=SUPPRESS)
    return parser


def _add_common(
    parser: ArgumentParser, *, json: object = False, site: object = None, dirs: object = ()
) -> None:
    parser.add_argument(
        "--json", action="store_true", default=json, help="print JSON instead of text"
    )
    add_option(parser, "--site", "FILE", SITE_HELP, default=site)
    add_systems_dir(parser, dirs)


def _add_new(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="such as MI325X_02x08x32")
    add_option(parser, "--accelerator", "GPU", "a name such as MI325X", required=True)
    add_option(parser, "--nodes", "N", "number of nodes", type=positive, required=True)
    add_number(parser, "--gpus-per-node", "N", "default: 8", 8)
    add_option(
        parser,
        "--fabric",
        "NAME",
        "default: none for one node, else that of the nearest system of the same GPU",
    )
    add_option(parser, "--workload", "W", "workload that it runs", required=True)
    add_option(parser, "--round", "R", "round of the workload (default: its newest)")
    add_option(
        parser, "--micro-batch", "N", "samples per GPU and step", type=positive, required=True
    )
    add_number(parser, "--accumulation", "N", "gradient accumulation (default: 1)", 1)
    add_option(parser, "-o --output", "DIR", "write DIR/NAME.yaml (default: print it)", type=Path)


def run(args: Namespace) -> int:
    given = [name for name, value in vars(args).items() if name.startswith("only_") and value]
    if args.action and given:
        raise UsageError(
            f"--{given[0].removeprefix('only_')} before `{args.action}` chooses among the "
            "catalogue's systems",
            hint=f"orchestrator systems {quoted(args.action)} --help lists its options",
        )
    actions = {
        None: _list,
        "show": _show,
        "diff": _diff,
        "new": _new,
        "import": _import,
        "schema": _schema,
    }
    return int(actions[args.action](args))


def _list(args: Namespace) -> ExitCode:
    from orchestrator.model import listing

    everything = listing.shipped() if not systems_folders(args) else None
    if everything is None:
        catalogue = catalogue_of(args)
        everything = [listing.line(system) for system in catalogue.systems()]
        for path, kind in catalogue.not_systems().items():
            note(f"{path}: not a system (kind: {kind}), left out")
    systems = [row for row in everything if _wanted(row, args)]
    if args.json:
        print_json("systems", {"systems": systems})
        return ExitCode.OK
    if not systems:
        note(f"no system of {len(everything)} is like that; orchestrator systems lists them")
        return ExitCode.OK
    rows = [
        (
            row["name"],
            row["accelerator"],
            f"{row['nodes']} x {row['gpus_per_node']}",
            _workloads_text(row),
        )
        for row in systems
    ]
    header = ("system", "GPU", "nodes", "workloads (rounds)")
    print_parts([Table("Systems", header, rows, numeric=(2,))])
    return ExitCode.OK


def _wanted(system: dict[str, Any], args: Namespace) -> bool:
    """Return whether a single round matches all filters."""
    if args.only_gpu and args.only_gpu.lower() not in system["accelerator"].lower().split():
        return False
    if args.only_nodes and args.only_nodes != system["nodes"]:
        return False
    return any(
        args.only_workload in ("", workload)
        and args.only_round in ("", name)
        and submitter.lower().startswith(args.only_submitter.lower())
        for workload, rounds in system["submitters"].items()
        for name, submitter in rounds.items()
    )


def _workloads_text(system: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} ({', '.join(rounds)})" for name, rounds in system["workloads"].items()
    )


def _show(args: Namespace) -> ExitCode:
    if args.workload is None:
        return _show_system(args)
    entry = _entry(args, args.name, args.workload, args.round, dict(args.env))
    if args.json:
        print_json("entry", entry_json(entry))
        return ExitCode.OK
    if args.why:
        _print_why(entry)
    else:
        facts = [(name, str(value)) for name, value in _facts(entry) if value not in ("", None)]
        variables = [(name, str(value)) for name, value in entry.whole_env.items()]
        print_parts(
            [
                Table("Facts", ("fact", "value"), facts),
                Table("Variables", ("variable", "value"), variables),
            ]
        )
    print_warnings(entry)
    return ExitCode.OK


def _show_system(args: Namespace) -> ExitCode:
    _, system = catalogue_of(args).system(args.name)
    rounds = [
        (workload, *round_item)
        for workload, rounds in system.workloads.items()
        for round_item in rounds.items()
    ]
    if args.json:
        entries = [_round_json(system, *round_item) for round_item in rounds]
        from orchestrator.model.listing import line

        print_json("system", {**line(system), "entries": entries})
        return ExitCode.OK
    print(f"{system.name}: {system.title}")
    rows = [
        (
            workload,
            name,
            str(part.micro_batch or "-"),
            str(part.global_batch or "-"),
            part.submitter or "-",
            _result_text(system, workload, name, part),
            ENV_FROM[part.env_from] if part.submitter else "-",
        )
        for workload, name, part in rounds
    ]
    table = Table(
        "Rounds",
        ("workload", "round", "micro", "global", "submitter", "result", "variables from"),
        rows,
        numeric=(2, 3),
        leave=("variables from",),
    )
    print_parts([table])
    for workload, name, part in rounds:
        if part.note:
            print_prose([f"{workload} {name}: {part.note}"])
    return ExitCode.OK


def _published(system: System, workload: str, name: str) -> PublishedResult | None:
    from orchestrator.published import find

    return next(
        (result for result in find(benchmark=workload, round=name) if result.system == system.name),
        None,
    )


def _result_text(system: System, workload: str, name: str, part: SystemRound) -> str:
    if part.submitted == "unknown":
        return "not known"
    if not part.submitted:
        return "configuration only" if part.submitter else "-"
    result = _published(system, workload, name)
    if result is None:
        return "yes, minutes not known"
    return f"{result.minutes:.2f} min{', from the logs' if result.basis == 'computed' else ''}"


def _round_json(system: System, workload: str, name: str, part: SystemRound) -> dict[str, Any]:
    result = _published(system, workload, name)
    return {
        "workload": workload,
        "round": name,
        "micro_batch": part.micro_batch,
        "global_batch": part.global_batch,
        "submitter": part.submitter,
        "submitted": part.submitted,
        "minutes": result.minutes if result else None,
        "basis": result.basis if result else None,
        "env_from": part.env_from,
        "source": part.source,
        "note": part.note,
    }


def _entry(
    args: Namespace,
    system: str,
    workload: str,
    round_name: str | None,
    env: dict[str, str] | None = None,
) -> Entry:
    from orchestrator.model import load_entry

    return load_entry(
        system,
        workload,
        round=round_name,
        site=find_site(args.site),
        env=env or {},
        systems_dirs=args.systems_dir,
    )


def _facts(entry: Entry) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [*entry.facts(lambda fact: fact.shown).items()]
    facts += [
        (
            "mount",
            (
                f"{mount.host or '$' + '/'.join(filter(None, (mount.variable, mount.subpath)))} at "
                f"{mount.container}"
            ),
        )
        for mount in entry.mounts
    ]
    return facts + [
        ("devices", " ".join(entry.container.devices)),
        ("privileged", entry.container.privileged),
    ]


def _print_why(entry: Entry) -> None:
    """Print every variable with its line; number and list documents once, with their sources."""
    rows: list[tuple[str, str, Origin]] = [
        *((name, str(value), entry.origins[name]) for name, value in entry.whole_env.items()),
        *((name, "(removed)", origin) for name, origin in entry.removed.items()),
    ]
    homes = dict.fromkeys(
        (origin.layer, origin.file, origin.source) for *_, origin in rows if origin.line
    )
    numbers = {home: f"[{number}]" for number, home in enumerate(homes, 1)}

    def place(origin: Origin) -> str:
        if not origin.line:
            return origin.layer
        number = numbers[origin.layer, origin.file, origin.source]
        return f"{Path(origin.file).stem}:{origin.line} {number}"

    variables = [(name, value, place(origin)) for name, value, origin in rows]
    ours = f"{data_dir('systems').parent}/"
    sources = [
        (number, f"{file.removeprefix(ours)}: {source or layer}")
        for (layer, file, source), number in numbers.items()
    ]
    print_parts([Table("Variables", ("variable", "value", "from"), variables), FactList(sources)])


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return the entry as plain data; every variable with value and origin."""
    from dataclasses import asdict

    result = {
        name: value
        for name, value in _facts(entry)
        if name not in ("mount", "devices", "privileged")
    }
    result |= {
        "mounts": [asdict(mount) for mount in entry.mounts],
        "container": asdict(entry.container),
        "data_tree": [step.model_dump() for step in entry.data_tree],
        "warnings": list(entry.warnings),
    }
    result["env"] = [
        {
            "name": name,
            "value": str(value),
            "rccl": name in entry.rccl_env,
            **entry.origins[name]._asdict(),
        }
        for name, value in entry.whole_env.items()
    ]
    result["removed"] = [
        {"name": name, **origin._asdict()} for name, origin in entry.removed.items()
    ]
    return result


def _diff(args: Namespace) -> ExitCode:
    from dataclasses import asdict

    from orchestrator.model.compare import differences

    catalogue = catalogue_of(args)
    left_system, left_workload, left_round = _split(args.left)
    right_system, right_workload, right_round = _split(args.right)
    workload = (
        left_workload or right_workload or _common_workload(catalogue, left_system, right_system)
    )
    left = _entry(args, left_system, left_workload or workload, left_round)
    right = _entry(args, right_system, right_workload or workload, right_round)
    changes = differences(left, right)
    names = [f"{entry.system}:{entry.workload}:{entry.round}" for entry in (left, right)]
    if names[0] == names[1]:  # of two files
        named = ((left_system, left), (right_system, right))
        names = [f"{name}:{entry.workload}:{entry.round}" for name, entry in named]
    if args.json:
        members = {
            "left": names[0],
            "right": names[1],
            "differences": [asdict(change) for change in changes],
        }
        print_json("systems-diff", members)
    elif changes:
        rows = [
            (change.name, change.kind, change.left or "-", change.right or "-")
            for change in changes
        ]
        print_parts([Table("Differences", ("name", "what", *names), rows)])
    else:
        print(f"{names[0]} and {names[1]} do not differ")
    return ExitCode.OK


def _split(text: str) -> tuple[str, str | None, str | None]:
    system, *rest = text.split(":")
    if len(rest) > 2 or not system:
        raise UsageError(f"{text!r} is not SYSTEM[:WORKLOAD[:ROUND]]")
    workload, round_name = (*rest, "", "")[:2]
    return system, workload or None, round_name or None


def _common_workload(catalogue: Catalogue, left: str, right: str) -> str:
    ours = catalogue.system(left)[1].workloads
    theirs = catalogue.system(right)[1].workloads
    common = [name for name in ours if name in theirs]
    if len(common) == 1:
        return common[0]
    which = f"they share {', '.join(common)}" if common else "they share no workload"
    raise UsageError(
        f"which workload of {left} and {right}? {which}",
        hint=f"orchestrator systems diff {quoted(left)}:WORKLOAD {quoted(right)}:WORKLOAD",
    )


def _new(args: Namespace) -> ExitCode:
    from orchestrator.model.draft import Outline, draft_system

    if args.json:
        raise UsageError(
            "systems new writes a descriptor, which is YAML; it takes no --json",
            hint="orchestrator systems show NAME --json shows a descriptor as JSON",
        )
    outline = Outline(
        args.name,
        args.accelerator,
        nodes=args.nodes,
        gpus_per_node=args.gpus_per_node,
        workload=args.workload,
        micro_batch=args.micro_batch,
        accumulation=args.accumulation,
        fabric=args.fabric,
        round=args.round or "",
    )
    draft = draft_system(catalogue_of(args), outline)
    for warning in draft.warnings:
        note(f"warning: {warning}")
    if args.output is None:
        print(draft.text, end="")
        return ExitCode.OK
    path = args.output / f"{args.name}.yaml"
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(draft.text)
    except FileExistsError as error:
        hint = "it may have been edited: remove it, or give another folder with -o"
        raise UsageError(f"{path} is there already", hint=hint) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    print(path)
    note(f"next: orchestrator validate {quoted(path)}")
    return ExitCode.OK


def _import(args: Namespace) -> ExitCode:
    from orchestrator.cli.importing import run_import

    return run_import(args, systems_folders(args))


def _schema(args: Namespace) -> ExitCode:
    print(generated_file(f"schemas/{args.kind}.json").read_text(encoding="utf-8"), end="")
    return ExitCode.OK


COMMAND = Command(
    "systems",
    __doc__,
    add_arguments,
    run,
)
