"""Copy the benchmark's code (/workspace/code) out of a system's image, to read or change it.

The image is not run. To use changed code, name its folder in the site file: `code: {WORKLOAD:
/path}`.

example:
  orchestrator code MI325X_08x08x32 flux1 -o ./code
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from orchestrator.cli.arguments import add_engine, add_json, add_option, add_site, add_system
from orchestrator.cli.command import Command
from orchestrator.cli.finding import find_site, load_named
from orchestrator.cli.output import note, print_json
from orchestrator.errors import ExitCode
from orchestrator.resources import user_path
from orchestrator.words import count


def add_arguments(parser: ArgumentParser) -> None:
    add_system(parser)
    add_option(parser, "-o --output", "DIR", "new folder (default: ./code-SYSTEM-WORKLOAD)")
    add_engine(parser)
    add_site(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.container.code import copy_code, default_folder
    from orchestrator.container.local import reachable

    entry = load_named(args, find_site(args.site))
    target = user_path(args.output) if args.output else default_folder(entry.system, entry.workload)
    with reachable(args.engine, entry.container.engine, entry.container.command) as address:
        copied = copy_code(entry.image, entry.code_dir, target, address=address)
    for name in copied.content.left_out:
        note(f"left out, because it points out of the folder or is a device: {name}")
    if args.json:
        print_json(
            "code",
            {
                "folder": str(copied.folder.resolve()),
                "reference": entry.image,
                "image": copied.image.to_json(),
                "code_dir": entry.code_dir,
                "files": copied.content.files,
                "bytes": copied.content.bytes,
                "left_out": copied.content.left_out,
            },
        )
    else:
        print(
            f"{copied.folder}: {count(copied.content.files, 'file')}, {copied.content.bytes / 1e6:.1f} MB, "
            f"from {entry.image} ({copied.image.id})"
        )
    return ExitCode.OK


COMMAND = Command(
    "code",
    __doc__,
    add_arguments,
    run,
)
