"""`images code`: copy a benchmark's code out of its image, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.output import note, print_json
from orchestrator.container.code import copy_code, default_folder
from orchestrator.container.local import reachable
from orchestrator.errors import ExitCode
from orchestrator.resources import user_path
from orchestrator.words import count

if TYPE_CHECKING:
    from argparse import Namespace

    from orchestrator.model import Entry


def copy(args: Namespace, entry: Entry) -> int:
    """Copy into --output, a new folder."""
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
            f"{copied.folder}: {count(copied.content.files, 'file')}, "
            f"{copied.content.bytes / 1e6:.1f} MB, "
            f"from {entry.image} ({copied.image.id})"
        )
    return ExitCode.OK
