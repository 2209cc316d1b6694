"""The engine of a node that is reached by running its command line there, through srun or SSH."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from orchestrator.container.image import EngineError, Image, Look, images_in
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import NodeAnswer, Transport

_ABSENT = ("no such image", "image not known", "unable to find image", "no such object")

# One round trip: load unless it is there, tag, and say what is there now. Every value is an argument.
INSTALL = r"""
tar=$1 id=$2 ref=$3; shift 3
if ! "$@" image inspect "$id" >/dev/null 2>&1; then
    [ -r "$tar" ] || { echo "cannot read $tar on this node; is it on shared storage?" >&2; exit 66; }
    "$@" load --quiet --input "$tar" >&2 || exit
fi
"$@" tag "$id" "$ref" && exec "$@" image inspect "$ref"
"""


class RemoteEngine:
    """The image store of one node. `command` calls its engine, such as ("docker",) or ("sudo", "-n", "docker")."""

    def __init__(
        self,
        node: NamedNode,
        transport: Transport,
        command: Sequence[str],
        stopped: threading.Event,
        *,
        timeout_s: float = 60,
        load_timeout_s: float = 3600,
    ) -> None:
        self.node = node
        self.transport = transport
        self.command = tuple(command)
        self.stopped = stopped
        self.timeout_s = timeout_s
        self.load_timeout_s = load_timeout_s

    def look(self, reference: str) -> Look:
        """Ask which image `reference` means there; never raises for a node that does not answer."""
        answer = self._run([*self.command, "image", "inspect", reference], self.timeout_s)
        return self._look(answer)

    def install(self, tar: Path, image: Image, reference: str) -> Look:
        """Load `tar` unless the image is there, and make `reference` mean it. Returns a new look."""
        argv = ["sh", "-c", INSTALL, "orchestrator", str(tar), image.id, reference, *self.command]
        return self._look(self._run(argv, self.load_timeout_s))

    def _run(self, argv: Sequence[str], timeout_s: float) -> NodeAnswer:
        return self.transport.run(self.node, argv, b"", timeout_s, self.stopped)

    def _look(self, answer: NodeAnswer) -> Look:
        if answer.ok:
            try:
                found = images_in(answer.text)
            except EngineError as error:
                return Look(self.node.name, problem=error.message)
            return Look(self.node.name, found[0] if found else None)
        said = answer.stderr.decode("utf-8", "replace").lower()
        if answer.answered and any(word in said for word in _ABSENT):
            return Look(self.node.name)
        return Look(self.node.name, problem=self._problem(answer))

    def _problem(self, answer: NodeAnswer) -> str:
        if answer.answered and answer.returncode == 127:
            return f"there is no `{self.command[0]}` on PATH"
        # srun's last line only repeats the exit code; what the engine said stands before it.
        lines = [
            line.strip()
            for line in answer.stderr.decode("utf-8", "replace").splitlines()
            if line.strip()
        ]
        said = [line for line in lines if not line.startswith("srun:")]
        return said[-1] if answer.answered and said else answer.message
