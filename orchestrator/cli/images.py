"""The container image on every node: which one is there, one copy on shared storage, the same one
everywhere.

  check       which image each node has: present, missing, or another one under the same tag
  pull        pull it once, into the local engine, and keep it as a tar on shared storage
  distribute  load the tar where the image is missing or another one; checked afterwards

An image is known by its id (the digest of its configuration), never by its tag. The wanted one is
that of --expect, else that of the tar on shared storage, else the one that most nodes have. Nodes
are reached with srun inside an allocation and with SSH outside one. `NAME=unix:///path` names a
node's engine, `NAME=ssh://user@host:port` a way to it. Exit code: 0 all nodes have the image, 1
they differ, 2 unusable input, 3 the engine failed, 4 a node did not answer.

example:
  orchestrator images check MI325X_08x08x32 flux1 --nodes node[1-8]
  orchestrator images pull --image rocm/amd-mlperf:flux1_training_6.0 --login me --password-stdin <token-file
  orchestrator images distribute --image rocm/amd-mlperf:flux1_training_6.0 --site site.yaml
"""

from __future__ import annotations

import os
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_engine, add_json, add_site, add_system, positive, words
from orchestrator.cli.command import Command
from orchestrator.cli.finding import find_site, load_named, site_log_dir
from orchestrator.cli.output import note, print_json, print_table
from orchestrator.errors import ExitCode, UsageError
from orchestrator.resources import user_path
from orchestrator.words import TextTable

if TYPE_CHECKING:
    from orchestrator.container.image import Look
    from orchestrator.container.spread import NodeEngine, SpreadReport, Wanted
    from orchestrator.container.store import StoredImage
    from orchestrator.model import Site
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import Transport

NODES = TextTable(
    "NODE", "IMAGE", "ID", "REPOSITORY DIGEST", "PROBLEM", states=("IMAGE",), below=("PROBLEM",)
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("check", "pull", "distribute"),
        metavar="check|pull|distribute",
        help="what to do",
    )
    add_system(parser, optional=True)
    parser.add_argument(
        "--image", metavar="REF", help="the image by name, instead of SYSTEM and WORKLOAD"
    )
    add_site(parser)
    parser.add_argument(
        "--nodes",
        metavar="LIST",
        help="node1,node2 or node[1-8] or NAME=unix:///engine.sock "
        "(default: the allocation's nodes, else the site's nodelist)",
    )
    parser.add_argument(
        "--tar",
        metavar="DIR",
        help="where tars are kept (default: images/ beside the site's log_dir)",
    )
    parser.add_argument("--expect", metavar="ID", help="the image id that is wanted on every node")
    parser.add_argument(
        "--limit", metavar="N", type=positive, default=8, help="nodes at a time (default: 8)"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=positive,
        default=3600,
        help="longest time for loading on one node (default: 3600)",
    )
    add_engine(parser)
    parser.add_argument(
        "--engine-command",
        metavar="COMMAND",
        type=words,
        default=[],
        help="how nodes call their engine, such as "
        "'sudo -n docker' (default: the site's container.command, else its engine)",
    )
    parser.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config")
    parser.add_argument(
        "--always", action="store_true", help="pull: also when the local engine has the image"
    )
    parser.add_argument(
        "--login", metavar="USER", help="pull: log in to the registry; needs --password-stdin"
    )
    parser.add_argument(
        "--password-stdin", action="store_true", help="pull: read the password from standard input"
    )
    add_json(parser)


def run(args: Namespace) -> int:
    task = _Task(args)
    return {"check": _check, "pull": _pull, "distribute": _distribute}[args.action](task)


@dataclass
class _Task:
    """The combined meaning of arguments and site file; each part is computed on demand."""

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
        if not args.workload:
            raise UsageError(
                "which image? name SYSTEM and WORKLOAD, or --image REF",
                hint=f"orchestrator images {args.action} MI325X_08x08x32 flux1",
            )
        return load_named(args, find_site(args.site)).image

    @cached_property
    def nodes(self) -> list[NamedNode]:
        from orchestrator.nodes.names import NamedNode, expand_all, parse_nodes

        if self.args.nodes:
            return parse_nodes(self.args.nodes)
        names = expand_all([os.environ.get("SLURM_JOB_NODELIST", "")])
        if not names and self.site is not None:
            names = expand_all(self.site.nodelist)
        if not names:
            raise UsageError(
                "which nodes? this is no allocation, and the site file has no nodelist",
                hint="--nodes node[1-8]",
            )
        return [NamedNode(name) for name in names]

    @cached_property
    def folder(self) -> Path:
        if self.args.tar:
            return Path(os.path.realpath(user_path(self.args.tar)))
        if self.site is None:
            raise UsageError(
                "where are the tars? there is no site file", hint="--tar DIR, on shared storage"
            )
        return site_log_dir(self.site).parent / "images"

    @cached_property
    def transport(self) -> Transport:
        from orchestrator.nodes.fanout import choose_transport

        return choose_transport(ssh_config=self.args.ssh_config)

    @cached_property
    def command(self) -> list[str]:
        if self.args.engine_command:
            return list(self.args.engine_command)
        container = self.site.container if self.site else None
        return list(container.command or [container.engine]) if container else ["docker"]

    def open(self, node: NamedNode, stopped: threading.Event) -> NodeEngine:
        from orchestrator.container.local import SocketEngine
        from orchestrator.container.remote import RemoteEngine

        if node.address.startswith(("unix:", "tcp:")):
            return SocketEngine(node.name, node.address, load_timeout_s=self.args.timeout)
        if node.address:
            from orchestrator.nodes.ssh import Ssh

            transport: Transport = Ssh(config_file=self.args.ssh_config)
        else:
            transport = self.transport
        return RemoteEngine(
            node, transport, self.command, stopped, load_timeout_s=self.args.timeout
        )

    def stored(self) -> StoredImage | None:
        """The tar on shared storage, if a folder for tars is known."""
        from orchestrator.container.store import stored

        if not self.args.tar and self.site is None:
            return None
        return stored(self.folder, self.reference)


# ---- check ----


def _check(task: _Task) -> int:
    from orchestrator.container.spread import judge, look_at

    reference = task.reference
    wanted = _wanted(task)
    looks = look_at(task.nodes, reference, task.open, limit=task.args.limit)
    report = judge(reference, looks, _completed(wanted, looks))
    _show(task, report)
    return _code(report)


def _wanted(task: _Task) -> Wanted | None:
    from orchestrator.container.image import Image, wanted_id
    from orchestrator.container.spread import Wanted

    if task.args.expect:
        return Wanted(Image(wanted_id(task.args.expect)), "--expect")
    kept = task.stored()
    return Wanted(kept.image, f"the tar {kept.tar}") if kept else None


def _completed(wanted: Wanted | None, looks: list[Look]) -> Wanted | None:
    """Return `wanted` with the whole id, if the user gave its start and a node has that image."""
    from dataclasses import replace

    if wanted is not None:
        for look in looks:
            if look.image and look.image.id.startswith(wanted.image.id):
                return (
                    replace(wanted, image=look.image)
                    if look.image.id != wanted.image.id
                    else wanted
                )
    return wanted


def _code(report: SpreadReport) -> int:
    if report.silent:
        return ExitCode.UNKNOWN
    return ExitCode.OK if report.equal else ExitCode.NO_SCORE


def _show(task: _Task, report: SpreadReport) -> None:
    from orchestrator.container.image import short
    from orchestrator.container.spread import sentence

    if task.args.json:
        print_json("images", report.to_json())
        return
    rows = [
        [
            node.node,
            node.state,
            short(node.image.id) if node.image else "-",
            _digest(node.image),
            node.problem,
        ]
        for node in report.nodes
    ]
    print_table(NODES, rows)
    print(f"{report.reference}: {sentence(report)}")
    if report.odd and task.args.action == "check":
        note(
            "hint: orchestrator images distribute makes them equal"
            if report.wanted
            else "hint: orchestrator images pull keeps the right one as a tar; or name it: --expect ID"
        )


def _digest(image: object) -> str:
    digests = getattr(image, "digests", ())
    return digests[0].partition("@")[2][:19] if digests else "-"


# ---- pull ----


def _pull(task: _Task) -> int:
    from orchestrator.container.image import short
    from orchestrator.container.local import engine, find_image
    from orchestrator.container.podman import reachable
    from orchestrator.container.pull import pull, read_login
    from orchestrator.container.store import check_room, keep

    args = task.args
    if bool(args.login) != args.password_stdin:
        raise UsageError("--login USER and --password-stdin belong together")
    reference, folder = task.reference, task.folder
    login = read_login(args.login, sys.stdin) if args.login else None
    local = task.site.container if task.site else None
    with (
        reachable(
            args.engine, local.engine if local else "", local.command if local else None
        ) as address,
        engine(address, timeout_s=args.timeout) as client,
    ):
        image = None if args.always else find_image(client, reference)
        pulled = image is None
        if image is None:
            note(f"pulling {reference}")
            image = pull(client, reference, login, _progress(reference))
        kept = task.stored()
        saved = kept is None or not kept.image.same_as(image)
        if kept is None or saved:
            check_room(folder, image)
            note(f"saving {short(image.id)} ({image.size / 1e9:.1f} GB) into {folder}")
            kept = keep(folder, reference, image, client.api.get_image(reference))
    if args.json:
        print_json("images-pull", {**kept.to_json(), "pulled": pulled, "saved": saved})
    else:
        print(
            f"image  {image.id}{'' if pulled else ' (was in the local engine; --always pulls again)'}\n"
            f"tar    {kept.tar}{'' if saved else ' (was there)'}"
        )
    return ExitCode.OK


def _progress(what: str) -> Callable[[str], None]:
    def tell(text: str) -> None:
        note(f"  {what}: {text}")

    return tell


# ---- distribute ----


def _distribute(task: _Task) -> int:
    from orchestrator.container.image import short, wanted_id
    from orchestrator.container.spread import Wanted, install_on, judge, look_at

    reference = task.reference
    if "@" in reference:
        raise UsageError(
            f"{reference}: a tar carries no repository digest, so this name cannot be given to an image",
            hint="name the image by its tag",
        )
    kept = task.stored()
    if kept is None:
        raise UsageError(
            f"there is no tar of {reference} in {task.folder}",
            hint=f"orchestrator images pull --image {reference} --tar {task.folder}",
        )
    if task.args.expect and not kept.image.id.startswith(wanted_id(task.args.expect)):
        raise UsageError(f"{kept.tar} holds {kept.image.id}, which is not the one of --expect")
    wanted = Wanted(kept.image, f"the tar {kept.tar}")
    looks = look_at(task.nodes, reference, task.open, limit=task.args.limit)
    before = judge(reference, looks, wanted)
    odd = [node for node in task.nodes if node.name in before.odd]
    if odd:
        note(
            f"loading {short(kept.image.id)} ({kept.bytes / 1e9:.1f} GB) on {len(odd)} of {len(task.nodes)} nodes"
        )
    began = time.monotonic()
    changed: dict[str, Look] = {}
    for look in install_on(odd, kept.tar, kept.image, reference, task.open, limit=task.args.limit):
        changed[look.node] = look
        passed = time.monotonic() - began
        note(
            f"  {look.node}: {look.problem or 'done'} ({len(changed)} of {len(odd)}, {passed:.1f} s)"
        )
    report = judge(reference, [changed.get(look.node, look) for look in looks], wanted)
    _show(task, report)
    return _code(report)


def _checked_reference(text: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from orchestrator.model.fields import Image

    try:
        return TypeAdapter(Image).validate_python(text)
    except ValidationError as error:
        raise UsageError(f"--image: {error.errors(include_url=False)[0]['msg']}") from error


COMMAND = Command(
    "images",
    "which image every node has; pull it once, bring it onto all of them",
    __doc__,
    add_arguments,
    run,
)
