"""Check, pull, build, load or inspect the container image of the nodes.

An image is identified by its id (the digest of its configuration), never by its tag. The wanted
image is that of --expect, else that of the tar on shared storage, else the most frequent one.
Inside an allocation nodes are reached with its steps. Outside, a site with Slurm lends nodes for
the time of the command: those of --nodes, else the idle nodes of the partition; without Slurm, and
with --via ssh, SSH is used. `NAME=ssh://user@host:port` is another way to a node,
`NAME=unix:///path` the socket of its engine.

Exit code: 0 all nodes have the image (inspect: no error was found), 1 they differ (inspect: errors
were found), 2 unusable input, 3 the engine failed, 4 a node did not answer.

example:
  orchestrator images check MI325X_08x08x32 flux1                 # idle nodes of the partition
  orchestrator images check MI325X_08x08x32 flux1 --nodes 'node[1-8]' --via ssh
  orchestrator images pull --image rocm/amd-mlperf:flux1_training_6.0 \\
      --login me --password-stdin <token-file
  orchestrator images build MI355X_1x8x1_Oracle gpt_oss_20b --tree ./8xMI355X_2xEPYC_9575F
  orchestrator images distribute --image rocm/amd-mlperf:flux1_training_6.0 --site site.yaml
  orchestrator images inspect MI325X_08x08x32 flux1
  orchestrator images inspect MI325X_08x08x32 flux1 --registry            # without an engine
  orchestrator images inspect MI325X_08x08x32 flux1 --from flux1.tar --json
  orchestrator images code MI325X_08x08x32 flux1 -o ./code
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    add_action,
    add_choice,
    add_engine,
    add_flag,
    add_json,
    add_number,
    add_option,
    add_site,
    add_system,
    add_text,
    split_command,
)
from orchestrator.cli.command import Action, Command
from orchestrator.cli.finding import find_site, load_named, site_log_dir
from orchestrator.cli.output import ask, note, print_json, print_parts
from orchestrator.errors import ExitCode, Fix, UsageError
from orchestrator.resources import user_path
from orchestrator.views.parts import Table
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.container.engine import NodeEngine
    from orchestrator.container.image import Image
    from orchestrator.container.pull import Login
    from orchestrator.container.spread import NodeImage, SpreadReport
    from orchestrator.inspection.tree import ImageTree
    from orchestrator.model import Entry, Site
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import Transport

SHOWN_DIGEST = len("sha256:") + 12

_ON_NODES = "--image --nodes --via --tar --expect --limit --timeout --engine-command --ssh-config"
ACTIONS = {
    "check": Action(
        "show which image each node has: present, missing, or another one under the same tag",
        _ON_NODES,
    ),
    "pull": Action(
        "pull the image once, into the local engine, and keep it as a tar on shared storage",
        "--image --tar --timeout --engine --always --login --password-stdin",
    ),
    "build": Action(
        "build an image from its published tree (--tree), with the local engine", "--tree"
    ),
    "distribute": Action(
        "load the tar on nodes without this image; check afterwards",
        f"{_ON_NODES} --others",
    ),
    "inspect": Action(
        "list the variables, programs, downloads, files and hidden errors of the image's scripts, "
        "and their conflicts with the bundle: from its files alone, without a GPU or a container",
        "--image --tar --engine --engine-command --from --command --partial --registry --login "
        "--password-stdin",
    ),
    "code": Action(
        "copy the benchmark's code (/workspace/code) out of the image; to use changed code, name "
        "its folder in the site file: `code: {WORKLOAD: /path}`",
        "--engine --output",
    ),
}


def add_arguments(parser: ArgumentParser) -> None:
    add_action(parser, ACTIONS)
    add_system(parser, optional=True)
    add_option(parser, "--image", "REF", "the image by name, instead of SYSTEM and WORKLOAD")
    add_site(parser)
    add_option(
        parser,
        "--nodes",
        "LIST",
        "node1,node2 or 'node[1-8]' or NAME=unix:///engine.sock (default: the allocation's nodes, "
        "else the site's nodelist, else the idle nodes of its partition)",
    )
    add_choice(
        parser,
        "--via",
        ("slurm", "ssh"),
        "how to reach the nodes outside an allocation (default: the site's scheduler; without "
        "Slurm SSH)",
    )
    add_option(
        parser, "--tar", "DIR", "folder of the tars (default: images/ next to the site's log_dir)"
    )
    add_option(parser, "--tree", "DIR", "build: the folder of the published tree (default: ask)")
    add_text(parser, "--expect", "ID", "the image id wanted on every node")
    add_number(parser, "--limit", "N", "nodes at a time (default: 8)", 8)
    add_number(
        parser, "--timeout", "SECONDS", "longest time for loading on one node (default: 3600)", 3600
    )
    add_option(
        parser,
        "--from",
        "PATH",
        "inspect: a tar of the image (docker save, OCI layout, file system) or its unpacked "
        "folder, "
        "instead of the engine's image",
        dest="source",
    )
    add_engine(parser)
    add_option(
        parser,
        "--engine-command",
        "COMMAND",
        "how nodes call their engine, such as "
        "'sudo -n docker' (default: the site's container.command, else its engine)",
        type=split_command,
        default=[],
    )
    add_option(parser, "--ssh-config", "FILE", "instead of ~/.ssh/config")
    add_option(
        parser,
        "--command",
        "WORDS",
        "inspect: another command of the image, such as 'bash ./scripts/prepare_data.sh'",
        type=split_command,
        default=[],
    )
    add_flag(
        parser,
        "--partial",
        "inspect: --from has a part of the image's files, such as its code alone",
    )
    add_option(parser, "-o --output", "DIR", "code: new folder (default: ./code-SYSTEM-WORKLOAD)")
    add_flag(parser, "--always", "pull: also when the local engine has the image")
    add_flag(
        parser,
        "--registry",
        "inspect: read the image from its registry; no engine is needed, and nothing is stored",
    )
    add_option(
        parser,
        "--login",
        "USER",
        "pull, inspect --registry: log in to the registry; needs --password-stdin",
    )
    add_flag(parser, "--password-stdin", "read the password from standard input")
    add_flag(parser, "--others", "distribute: also a tar that another user can write")
    add_json(parser)


def run(args: Namespace) -> int:
    actions = {
        "check": _check,
        "pull": _pull,
        "build": _build,
        "distribute": _distribute,
        "inspect": _inspect,
        "code": _code,
    }
    return actions[args.action](_Request(args))


@dataclass
class _Request:
    """The arguments with the site file; each value is read on first use."""

    args: Namespace

    @cached_property
    def site(self) -> Site | None:
        from orchestrator.model import load_site

        path = find_site(self.args.site)
        return load_site(path) if path else None

    @cached_property
    def reference(self) -> str:
        args = self.args
        if args.image:
            if args.system:
                raise UsageError("either --image or SYSTEM and WORKLOAD, not both")
            return _checked_reference(args.image)
        if not args.system:
            raise UsageError(
                "which image? name SYSTEM and WORKLOAD, or --image REF",
                hint=f"orchestrator images {quoted(args.action)} MI325X_08x08x32 flux1",
            )
        return self.entry.image

    @cached_property
    def entry(self) -> Entry:
        return load_named(self.args, find_site(self.args.site))

    @cached_property
    def folder(self) -> Path:
        if self.args.tar:
            return Path(os.path.realpath(user_path(self.args.tar)))
        if self.site is None:
            raise UsageError(
                "no folder of tars: there is no site file", hint="--tar DIR, on shared storage"
            )
        return site_log_dir(self.site).parent / "images"

    @property
    def has_folder(self) -> bool:
        return bool(self.args.tar) or self.site is not None

    @cached_property
    def login(self) -> Login | None:
        from orchestrator.container.pull import read_login

        if bool(self.args.login) != self.args.password_stdin:
            raise UsageError("--login USER and --password-stdin belong together")
        return read_login(self.args.login, sys.stdin) if self.args.login else None

    @contextmanager
    def engines(self) -> Iterator[list[NodeEngine]]:
        """Their allocation lasts until the context ends."""
        from orchestrator.cli.lending import lends, lent
        from orchestrator.container.engine import INSPECT_S, engines_of
        from orchestrator.nodes.names import NamedNode, expand_all, parse_nodes
        from orchestrator.scheduler.slurm_variables import current_allocation

        args, site = self.args, self.site
        container = site.container if site else None
        default = (container.command or [container.engine]) if container else ["docker"]

        def engines(nodes: list[NamedNode], through: Transport | None = None) -> list[NodeEngine]:
            return engines_of(
                nodes,
                args.engine_command or default,
                ssh_config=args.ssh_config,
                load_timeout_s=args.timeout,
                through=through,
            )

        nodes = parse_nodes(args.nodes) if args.nodes else []
        asked = args.via == "slurm" or not (args.via or args.ssh_config)
        if asked and site is not None and lends(site, nodes):
            loading_s = args.timeout if args.action == "distribute" else 0
            names, seconds = [node.name for node in nodes], INSPECT_S + loading_s
            with lent(site, names, "images", seconds=seconds, limit=args.limit) as (chosen, way):
                yield engines(chosen, way)
            return
        if not nodes:
            names = expand_all([current_allocation().nodelist])
            names = names or expand_all(site.nodelist if site else [])
            nodes = [NamedNode(name) for name in names]
        if not nodes:
            raise UsageError(
                "which nodes? this is no allocation, and the site file has no nodelist",
                hint="--nodes 'node[1-8]'",
            )
        yield engines(nodes)


def _checked_reference(text: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from orchestrator.model.fields import Image

    try:
        return TypeAdapter(Image).validate_python(text)
    except ValidationError as error:
        raise UsageError(f"--image: {error.errors(include_url=False)[0]['msg']}") from error


# ---- actions ----


def _check(request: _Request) -> int:
    from orchestrator.container.spread import check
    from orchestrator.container.store import stored

    args = request.args
    reference = request.reference
    kept = None
    if request.has_folder and not args.expect:
        kept = stored(request.folder, reference)
    with request.engines() as engines:
        report = check(engines, reference, expected=args.expect, kept=kept, limit=args.limit)
    _keep_found(request, report)
    _print(report, args)
    if report.odd and not args.json:
        fix = "distribute makes them equal"
        keep = "pull keeps the right image as a tar; or name it: --expect ID"
        note(f"hint: orchestrator images {fix if report.wanted else keep}")
    return _exit_code(report)


def _pull(request: _Request) -> int:
    from orchestrator.container.local import reachable
    from orchestrator.container.pull import pull_and_save

    args = request.args
    login = request.login
    reference = request.reference
    folder = request.folder
    container = request.site.container if request.site else None
    engine = container.engine if container else ""
    command = container.command if container else None
    proxy = container.proxy.variables if container else None
    with reachable(args.engine, engine, command, proxy) as address:
        result = pull_and_save(
            reference,
            folder,
            address=address,
            login=login,
            always=args.always,
            timeout_s=args.timeout,
            progress=note,
        )
    if args.json:
        steps = {"pulled": result.pulled, "saved": result.saved}
        print_json("images-pull", {**result.kept.to_json(), **steps})
    else:
        present = "" if result.pulled else " (was in the local engine; --always pulls again)"
        print(f"image  {result.image.id}{present}")
        print(f"tar    {result.kept.tar}{'' if result.saved else ' (was there)'}")
    return ExitCode.OK


def _build(request: _Request) -> int:
    from orchestrator.container.local import build

    if not request.args.system or request.args.image:
        raise UsageError(
            "images build needs SYSTEM and WORKLOAD",
            hint="orchestrator images build MI355X_1x8x1_Oracle gpt_oss_20b --tree DIR",
        )
    entry = request.entry
    if entry.build is None:
        raise UsageError(
            f"the build of {entry.image} is not published",
            hint=f"orchestrator images pull --image {quoted(entry.image)}",
        )
    given = request.args.tree or ask(f"folder of the published tree ({entry.build.source})")
    if not given:
        raise UsageError(f"--tree DIR: the folder of the published tree ({entry.build.source})")
    container = entry.site.container
    command = container.command or [container.engine if container.engine != "none" else "docker"]
    tree = user_path(given)
    build(command, entry.image, tree, entry.build.dockerfile, entry.build.source)
    if request.args.json:
        print_json("images-build", {"reference": entry.image, "tree": given})
    else:
        print(f"image  {entry.image}")
        note(
            f"hint: orchestrator images pull --image {quoted(entry.image)} keeps it as a tar for "
            "all nodes"
        )
    return ExitCode.OK


def _distribute(request: _Request) -> int:
    from orchestrator.container.spread import distribute, tar_to_distribute

    args = request.args
    kept = tar_to_distribute(request.folder, request.reference, args.expect, of_others=args.others)
    with request.engines() as engines:
        report = distribute(engines, kept, limit=args.limit, progress=note)
    _keep_found(request, report)
    _print(report, args)
    return _exit_code(report)


def _keep_found(request: _Request, report: SpreadReport) -> None:
    """Let `submit` know which nodes have the image."""
    from orchestrator.container.image_nodes import keep

    if request.site is None:
        return
    have = [node.node for node in report.nodes if node.state == "present"]
    keep(site_log_dir(request.site).parent / "images", report.reference, have, report.odd)


def _code(request: _Request) -> int:
    from orchestrator.cli.image_code import copy

    if not request.args.system:
        raise UsageError(
            "whose code? name SYSTEM and WORKLOAD",
            hint="orchestrator images code MI325X_08x08x32 flux1",
        )
    return copy(request.args, request.entry)


def _inspect(request: _Request) -> int:
    from orchestrator.cli.image_contract import inspect

    args = request.args
    if args.registry and (args.source or args.engine):
        raise UsageError("--registry reads from the registry: not with --from or --engine")
    return inspect(
        request.entry if args.system else None,
        args.image or "",
        partial(_image_files, request),
        source=args.source or "",
        partial=args.partial,
        command=args.command,
        folder=request.folder if request.has_folder and not args.command else None,
        as_json=args.json,
    )


def _image_files(request: _Request, image: str, names: Collection[str]) -> ImageTree:
    args, site = request.args, request.site
    container = site.container if site else None
    if args.source:
        from orchestrator.inspection.archives import read_saved

        if not Path(args.source).exists():
            raise UsageError(f"--from {args.source}: there is no such file or folder")
        return read_saved(Path(args.source), names, note, reference=image)
    if not image:
        raise UsageError(
            "which image? name SYSTEM and WORKLOAD, --image REF, or --from PATH",
            hint="orchestrator images inspect MI325X_08x08x32 flux1",
        )
    if args.registry:
        from orchestrator.container.registry import Registry
        from orchestrator.inspection.archives import read_registry

        proxy = container.proxy.variables if container else None
        return read_registry(Registry(image, login=request.login, proxy=proxy), names, note)
    from orchestrator.container.image import EngineError
    from orchestrator.container.local import engine, reachable
    from orchestrator.inspection.sources import read_engine

    kind = container.engine if container else ""
    command = args.engine_command or (container.command if container else None)
    with reachable(args.engine, kind, command) as address:
        try:
            with engine(address, timeout_s=600) as client:
                return read_engine(client, image, names, note)
        except EngineError as error:
            error.advise(fix=Fix(again=("--registry",)))
            raise


# ---- output ----


def _exit_code(report: SpreadReport) -> int:
    if report.failed:
        return ExitCode.SCHEDULER  # also with silent nodes: repeating would not be enough
    if report.silent:
        return ExitCode.UNKNOWN
    return ExitCode.OK if report.equal else ExitCode.NO_SCORE


def _print(report: SpreadReport, args: Namespace) -> None:
    if args.json:
        print_json("images", report.to_json())
        return
    table = Table(
        "Images of the nodes",
        ("node", "image", "ID", "repository digest"),
        [_row(node) for node in report.nodes],
        states=(1,),
        remark="problem",
        below=[node.problem for node in report.nodes],
    )
    print_parts([table])
    print(f"{report.reference}: {report.summary}")


def _row(node: NodeImage) -> list[str]:
    from orchestrator.container.image import short

    image_id = short(node.image.id) if node.image else "-"
    return [node.node, node.state, image_id, _digest(node.image)]


def _digest(image: Image | None) -> str:
    if image is None or not image.digests:
        return "-"
    return image.digests[0].partition("@")[2][:SHOWN_DIGEST]


COMMAND = Command(
    "images",
    __doc__,
    add_arguments,
    run,
    actions=ACTIONS,
)
