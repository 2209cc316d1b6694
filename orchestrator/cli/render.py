"""Write the bundle for a system and a workload: plain bash that runs without this program.

Needs neither Slurm nor Docker. The same system, workload, site and options give the same bytes.

examples:
  orchestrator render MI325X_08x08x32 flux1 --site site.yaml --nexp 10 -o bundle/
  (cd bundle && sbatch job.sh)
  orchestrator render MI325X_08x08x32 flux1 --site site.yaml -o -          # print job.sh
  orchestrator render MI325X_08x08x32 flux1 --site site.yaml --diff SET    # compare with a set
  orchestrator render MI300X_2x8x1 llama2_70b_lora --image-config config.sh   # over the image's own
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_entry, add_flag, add_json, add_option
from orchestrator.cli.command import Command
from orchestrator.cli.finding import load_asked, log_dir_of, need_site
from orchestrator.cli.output import note, print_json
from orchestrator.errors import ExitCode, UsageError
from orchestrator.scheduler.kinds import kind_of
from orchestrator.words import clean, count, quoted

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry


def add_arguments(parser: ArgumentParser) -> None:
    add_entry(parser)
    add_option(parser, "-o --output", "DIR", "folder of the bundle; - prints job.sh")
    add_option(
        parser,
        "--diff",
        "SET",
        "show the differences from the bundle of this set or folder; exit code 1 if there are any",
    )
    add_option(
        parser,
        "--image-config",
        "FILE",
        "write only the environment, as a new file to mount over the config of an image",
    )
    add_flag(parser, "--force", "replace a bundle even if it was edited by hand")
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.render import render_bundle, write_bundle

    if sum(map(bool, (args.output, args.diff, args.image_config))) != 1:
        raise UsageError(
            "name a folder for the bundle (-o DIR) or a set to compare it with (--diff SET)",
            hint="or --image-config FILE",
        )
    if args.json and (args.output == "-" or args.image_config):
        raise UsageError(
            "--json reports a written bundle, or differences", hint="with -o DIR or --diff SET"
        )
    entry = load_asked(args)
    if args.image_config:
        return _write_config(entry, Path(args.image_config))
    files = render_bundle(entry, nexp=args.nexp or entry.runs_required)
    if args.diff:
        return _diff(args, files)
    if args.output == "-":
        sys.stdout.buffer.write(files["job.sh"])
        return ExitCode.OK
    directory = Path(args.output)
    write_bundle(files, directory, replace_edited=args.force)
    _print_outcome(args, entry, files, directory)
    return ExitCode.OK


def _write_config(entry: Entry, path: Path) -> int:
    from orchestrator.render.bundle import image_config

    try:
        with path.open("xb") as file:
            file.write(image_config(entry))
    except OSError as error:
        raise UsageError(
            f"--image-config {path}: {error.strerror}", hint="name a new file"
        ) from error
    note(f"{path}: {count(len(entry.whole_env), 'variable')}; SEED is that of the run")
    if "NCCL_SOCKET_IFNAME" not in entry.whole_env:
        note("no names of interfaces: each node detects its own (`network` of the site file)")
    return ExitCode.OK


def _diff(args: Namespace, files: dict[str, bytes]) -> int:
    from orchestrator.render import diff_bundle

    place = Path(args.diff)
    if not (place / "manifest.json").is_file():
        from orchestrator.runset.find import find_set

        place = find_set(args.diff, log_dir_of(need_site(args.site))) / "bundle"
    lines = list(diff_bundle(files, place))
    if args.json:
        print_json("render-diff", {"equal": not lines, "diff": lines})
    elif lines:
        print("\n".join(map(clean, lines)))
    else:
        print(f"no difference from {place}")
    return ExitCode.NO_SCORE if lines else ExitCode.OK


def _print_outcome(args: Namespace, entry: Entry, files: dict[str, bytes], directory: Path) -> None:
    from orchestrator.render import manifest_hash
    from orchestrator.scheduler.advice import start_set

    if args.json:
        print_json(
            "render",
            {
                "directory": str(directory),
                "files": sorted(files),
                "sha256": manifest_hash(files),
                "system": entry.system,
                "workload": entry.workload,
                "round": entry.round,
            },
        )
        return
    print(f"bundle  {directory} ({count(len(files), 'file')})")
    if kind_of(entry.site.scheduler).allocates:
        print(f"start   cd {quoted(directory)} && {start_set('slurm')}")
    if entry.site.side_by_side == 1 and (entry.nodes == 1 or entry.container.engine == "none"):
        print(f"start   bash {quoted(directory / 'run_with_docker.sh')}")


COMMAND = Command(
    "render",
    __doc__,
    add_arguments,
    run,
    {ExitCode.NO_SCORE: "--diff: something differs"},
)
