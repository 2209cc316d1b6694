"""The standard error of a step: kept for people, and searched for nodes whose process has ended."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..kernel.events import clean

MAX_COMPLAINTS = 1 << 20
"""Characters that are kept of the standard error of a group's nodes and srun."""
BEHIND_S = 0.5
"""A node's own last words come another way than those about it, and may be that much later."""
_LAST_LINES = 5
_NO_PYTHON = re.compile(
    r"slurmstepd(?:-([\w.-]+))?: error: execve\(\): (.*)|orchestrator: \S+ on ([\w.-]+) is Python"
)
_OTHER_PYTHON = "name another interpreter (`python:` in the site file, PYTHON=... for this bundle)"
# Not `Node failure on n1`: its slurmd is silent, and the run may still be well; a dead node does
# not answer a ping.
_ENDED = re.compile(r"on node ([\w.-]+)|(?:^|[^\w.\[\],-])([\w.,\[\]-]+): tasks? ")


class Complaints:
    """The standard error of the steps of a group.

    `names` gives the nodes of `n[1-3]`, `keep` takes each line that is kept.
    """

    def __init__(
        self,
        now: Callable[[], float],
        names: Callable[[str], list[str]],
        keep: Callable[[str], None],
    ) -> None:
        self._now, self._names, self._keep = now, names, keep
        self._kept = 0
        self.begin()

    def begin(self) -> None:
        """Forget the step before."""
        self._last: list[str] = []
        self._ended: dict[str, tuple[float, str]] = {}
        """Nodes that have ended by these lines -> when that counts (World.now), and why."""
        self._cancelled = False

    @property
    def last_words(self) -> str:
        return " ".join(self._last)

    def take(self, sender: str, line: bytes) -> None:
        """Take in a line. What a node (`sender`) writes counts for itself alone; "" is srun."""
        text = clean(line.decode("utf-8", "replace"), 500)
        self._last = [*self._last[1 - _LAST_LINES :], text]
        self._keep_some(f"{sender}: {text}" if sender else text)
        if self._cancelled:  # srun ends all the others then, and names them
            return
        self._cancelled = not sender and "launch failed" in text
        if not self._take_no_python(sender, text):
            self._take_ended(sender, text)

    def _take_no_python(self, sender: str, text: str) -> bool:
        """Whether it is the cause of an end, which comes before or after its consequence."""
        found = _NO_PYTHON.match(text)
        if found is None:
            return False
        slurmd, program, host = found.groups()
        reason = text
        if not host:
            hint = f"install python3 (3.9 or newer) there, or {_OTHER_PYTHON}"
            reason = f"cannot start {program}; {hint}"
        node = sender or slurmd or (host or "").partition(".")[0]
        self._ended[node] = self._now() + BEHIND_S, reason
        return True

    def _take_ended(self, sender: str, text: str) -> None:
        for one, several in _ENDED.findall(text):
            if sender:
                nodes = [sender] if one == sender else []
            else:
                nodes = self._names(one or several)
            for node in nodes:
                self._ended.setdefault(node, (self._now() + BEHIND_S, f"its step ended: {text}"))

    def _keep_some(self, text: str) -> None:
        """Keep a line, up to MAX_COMPLAINTS in all."""
        before = self._kept
        self._kept += len(text) + 1
        if before > MAX_COMPLAINTS:
            return
        is_last = self._kept > MAX_COMPLAINTS
        self._keep(f"{text} (later lines are not kept)" if is_last else text)

    def ended_nodes(self, *, is_over: bool) -> list[tuple[str, str]]:
        """Return the nodes that have ended by now, each once, with the reason.

        Of a step that is over all lines have come, and the other nodes may have been ended with
        the one that was named first.
        """
        now = self._now()
        first = next(iter(self._ended), "") if is_over else ""
        due = [node for node, (when, _) in self._ended.items() if when <= now or node == first]
        return [(node, self._ended.pop(node)[1]) for node in due]

    def look_again(self, at_latest: float) -> float:
        """Return when `ended_nodes` is to be asked again (World.now)."""
        return min([at_latest, *(when for when, _ in self._ended.values())])
