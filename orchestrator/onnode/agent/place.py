"""Where the runs of a node happen: the seam between a run and its container, or its host."""

from __future__ import annotations

from collections.abc import Callable


class Place:
    """Where runs happen: a shell that gets the name of a run and starts its script.

    It is in a container, or on the host itself.

    `inside` is the node's channel as it is called there, `code` the folder of the training's code.
    What the shell says goes to the run as words: NAME started PID; NAME ended STATUS LEFT (1:
    something of the run still lives); NAME clear. This class is the place of a node that has none.
    """

    def __init__(self, inside: str = "", code: str = "") -> None:
        self.inside, self.code = inside, code
        self._heard: Callable[[list[str]], object] = len
        self._runs = 0

    def expect(self, heard: Callable[[list[str]], object]) -> int:
        """Let the run that is prepared now hear the shell; return how many were prepared here."""
        self._heard = heard
        self._runs += 1
        return self._runs

    def hear(self, line: str) -> None:
        self._heard(line.split())

    @property
    def gone(self) -> bool:
        """Whether nothing can run here any more."""
        return False

    def root(self) -> int:
        """Return the process of this host that all of its runs come from; 0 when that is not known."""
        return 0

    def command(self, argv: list[str], *, debugger: bool = False) -> list[str]:
        """Return what runs `argv` where the runs are; `debugger`: it looks into processes."""
        return argv

    def start(self, name: str) -> None:
        """Have the script of the run `name` begun."""

    def signal(self, word: str, pid: str) -> None:
        """Send TERM or KILL to the run whose first process is `pid`; KILL to all that is left of it."""

    def let_go(self) -> None:
        """Have it begin to end, where that takes time."""

    def close(self) -> None:
        """End it, with all that is left in it."""
