"""The seam between a run and its container, or its host."""

from __future__ import annotations

from collections.abc import Callable


class Executor:
    """A shell in a container or on the host, which gets the name of a run and starts its script.

    `inside`: the node's channel as seen there; `code`: the folder of the training's code. The
    shell's messages go to the run: NAME started PID; NAME ended STATUS LEFT (1: a process of the
    run still lives); NAME clear. This class itself runs nothing.
    """

    def __init__(self, inside: str = "", code: str = "") -> None:
        self.inside, self.code = inside, code
        self._heard: Callable[[list[str]], object] = len
        self._runs = 0

    def expect(self, heard: Callable[[list[str]], object]) -> int:
        """Connect the prepared run to the shell; return how many were prepared."""
        self._heard = heard
        self._runs += 1
        return self._runs

    def hear(self, line: str) -> None:
        self._heard(line.split())

    @property
    def gone(self) -> bool:
        """True if nothing can run any more."""
        return False

    def root(self) -> int:
        """Return the ancestor of all runs on this host; 0 if unknown."""
        return 0

    def command(self, argv: list[str], *, debugger: bool = False) -> list[str]:
        """Return a command that runs `argv` with the runs; `debugger`: it inspects processes."""
        return argv

    def start(self, name: str) -> None:
        """Start the script of the run `name`."""

    def signal(self, word: str, pid: str) -> None:
        """Send TERM or KILL to the run with this first process; KILL to its group, on
        the host to all its descendants."""

    def release(self) -> None:
        """Begin the end, if that takes time."""

    def close(self) -> None:
        """End it, with all its processes."""
