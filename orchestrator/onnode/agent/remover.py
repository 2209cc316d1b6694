"""A small process next to a container, which removes it if the agent and the engine's client are
both killed.

An engine removes a container by itself only after it ran. A client killed between the requests
`create` and `start` leaves one that never runs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess

from .node import Node, removal

MADE_S = (0, 1, 2, 4)
LATEST_S = (*MADE_S, 8, 16, 32)
"""Pauses before each try: for a container that ran, and for one that a busy engine may still be
creating."""

# Its input ends with both of them. Signals to the job are for the agent.
_SCRIPT = f"""
trap '' TERM INT HUP
read -r word && exit
pauses='{" ".join(map(str, LATEST_S))}'
[ -z "$word" ] || pauses='{" ".join(map(str, MADE_S))}'
for pause in $pauses; do
  sleep "$pause"
  %s
  [ -z "$(%s)" ] || exit  # engines print what they removed
done
"""


class Remover:
    """`held` is a descriptor for the client: while it or the agent has it open, nothing is
    removed. Raises OSError."""

    def __init__(self, node: Node, container: str) -> None:
        *before, remove = map(shlex.join, removal(node, container))
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ORCH_")
        }
        read, self.held = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["sh", "-c", _SCRIPT % ("; ".join(before) or ":", remove), "orchestrator-remover"],
                stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/", env=environment,
            )  # fmt: skip
        except OSError:
            os.close(self.held)
            raise
        finally:
            os.close(read)

    def made(self) -> None:
        """Note that the container runs: the engine removes it then, and a few tries make sure."""
        self._tell(b"made ")

    def end(self) -> None:
        """End it: the container is removed."""
        self._tell(b"\n")
        self.leave()

    def _tell(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # somebody killed it
            os.write(self.held, word)

    def leave(self) -> None:
        """Let it remove the container after the client's end, too."""
        os.close(self.held)
