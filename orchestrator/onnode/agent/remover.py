"""A process that removes a container if agent and engine client are killed, or if the agent hands
it over.

Engines remove only containers that ran: a client killed between `create` and `start` leaves its
container.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess

from .node import Node, removal

MADE_S = (0, 1, 2, 4)
LATEST_S = (*MADE_S, 8, 16, 32)
"""Pauses before each try: for a container that ran, and for a container that a busy engine still
creates."""

# Its input ends with both of them; signals to the job are for the agent.
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
    """`held`: a descriptor for the client; nothing is removed while client or agent has it open.
    Raises OSError."""

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
        """The container runs: the engine will remove it, and a few tries confirm that."""
        self._tell(b"made ")

    def end(self) -> None:
        self._tell(b"\n")
        self.leave()

    def _tell(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # killed
            os.write(self.held, word)

    def leave(self) -> None:
        """Let it remove the container after the client's end."""
        os.close(self.held)
