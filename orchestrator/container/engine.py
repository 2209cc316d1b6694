"""A node's image store, through its engine's command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from orchestrator.container.image import EngineError, Image, images_in
from orchestrator.nodes.fanout import choose_transport
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.ssh import Ssh
from orchestrator.nodes.transport import NodeAnswer, NodeCommand, ThisHost, Transport

INSPECT_S = 60.0
LOAD_S = 3600.0
UNREACHED = ("cannot connect", "unable to connect", "failed to connect", "error during connect")
"""An engine's command about another host's engine that does not answer."""
ABSENT = ("no such image", "image not known", "unable to find image", "no such object")

# Load a missing image, tag it, inspect the result. All values are arguments.
INSTALL = r"""
tar=$1 id=$2 ref=$3; shift 3
if ! "$@" image inspect "$id" >/dev/null 2>&1; then
    [ -r "$tar" ] || {
        echo "cannot read $tar on this node; is it on shared storage?" >&2
        exit 66
    }
    "$@" load --quiet --input "$tar" >&2 || exit
fi
"$@" tag "$id" "$ref" && exec "$@" image inspect "$ref"
"""


@dataclass(frozen=True, slots=True)
class EngineReply:
    """A node's image, None if missing; `problem`: why it is unknown, as the engine failed or
    (without `answered`) no reply came."""

    node: str
    image: Image | None = None
    problem: str = ""
    answered: bool = True


@dataclass(frozen=True)
class NodeEngine:
    """The image store of `node`; `command` is such as ("sudo", "-n", "docker")."""

    node: NamedNode
    transport: Transport
    command: tuple[str, ...]
    load_timeout_s: float = LOAD_S

    @classmethod
    def at_socket(
        cls, node: NamedNode, command: Sequence[str], load_timeout_s: float = LOAD_S
    ) -> NodeEngine:
        """Return the engine at the node's address, called from this host."""
        option = "--url" if os.path.basename(command[-1]) == "podman" else "--host"
        remote = (*command, option, node.address)
        return cls(node, ThisHost(), remote, load_timeout_s)

    def inspect(self, reference: str, stopped: Event) -> EngineReply:
        argv = [*self.command, "image", "inspect", reference]
        command = NodeCommand(argv, timeout_s=INSPECT_S)
        return self._reply(self.transport.run(self.node, command, stopped))

    def install(self, tar: Path, image: Image, reference: str, stopped: Event) -> EngineReply:
        """Load `tar` if `image` is missing, and name it `reference`."""
        argv = ["sh", "-c", INSTALL, "orchestrator", str(tar), image.id, reference, *self.command]
        command = NodeCommand(argv, timeout_s=self.load_timeout_s)
        return self._reply(self.transport.run(self.node, command, stopped))

    def _reply(self, answer: NodeAnswer) -> EngineReply:
        name = self.node.name
        if answer.ok:
            try:
                images = images_in(answer.text)
            except EngineError as error:
                return EngineReply(name, problem=error.message)
            return EngineReply(name, images[0] if images else None)
        complaint = "\n".join(answer.complaints).lower()
        if answer.answered and any(text in complaint for text in ABSENT):
            return EngineReply(name)
        if answer.answered and answer.returncode == 127:
            return EngineReply(name, problem=f"there is no `{self.command[0]}` on PATH")
        is_silent = not answer.answered or (_is_socket(self.node) and _unreached(complaint))
        return EngineReply(name, problem=answer.message, answered=not is_silent)


def _is_socket(node: NamedNode) -> bool:
    return node.address.startswith(("unix:", "tcp:"))


def _unreached(complaint: str) -> bool:
    refused = "permission denied" in complaint
    return not refused and any(text in complaint for text in UNREACHED)


def engines_of(
    nodes: Sequence[NamedNode],
    command: Sequence[str],
    *,
    ssh_config: str | None = None,
    load_timeout_s: float = LOAD_S,
    through: Transport | None = None,
) -> list[NodeEngine]:
    """Return engines at their sockets, over SSH, or in an allocation. `through` leads to nodes
    without an address."""
    default = through or choose_transport(ssh_config=ssh_config)
    ssh = Ssh(config_file=ssh_config)
    engines = []
    for node in nodes:
        if _is_socket(node):
            engine = NodeEngine.at_socket(node, command, load_timeout_s)
        else:
            transport = ssh if node.address else default
            engine = NodeEngine(node, transport, tuple(command), load_timeout_s)
        engines.append(engine)
    return engines
