"""The standard error of a step: kept for people, and searched for ended processes."""

from __future__ import annotations

from collections.abc import Callable

from ..kernel.events import clean
from .slurm import step_message

MAX_COMPLAINTS = 1 << 20
"""Characters kept of the standard error of a group's steps."""
BEHIND_S = 0.5
"""A node's own last messages come another way than its step's, and may be this much later."""
_LAST_LINES = 5


class Complaints:
    """The standard error of the steps of a group.

    `names` expands `n[1-3]`; `keep` gets each line to be kept.
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
        """Start with a new step."""
        self._last: list[str] = []
        self._ended: dict[str, tuple[float, str]] = {}
        """Ended node -> when that counts (World.now), and why."""
        self._cancelled = False

    @property
    def last_lines(self) -> str:
        return " ".join(self._last)

    def take(self, sender: str, line: bytes) -> None:
        """Take in a line of a node, or of the step itself (`sender` is "")."""
        text = clean(line.decode("utf-8", "replace"), 500)
        self._last = [*self._last[1 - _LAST_LINES :], text]
        self._keep_some(f"{sender}: {text}" if sender else text)
        if self._cancelled:
            return
        message = step_message(sender, text, self._names)
        self._cancelled = message.cancels
        due = self._now() + BEHIND_S
        for node, reason in message.ended.items():
            if message.is_cause or node not in self._ended:
                self._ended[node] = due, reason

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

        If the step is over, all its lines have come. The other nodes may have been ended together
        with the first one named.
        """
        now = self._now()
        first = next(iter(self._ended), "") if is_over else ""
        due = [node for node, (when, _) in self._ended.items() if when <= now or node == first]
        return [(node, self._ended.pop(node)[1]) for node in due]

    def next_check(self, at_latest: float) -> float:
        """Return when to call `ended_nodes` again (World.now)."""
        return min([at_latest, *(when for when, _ in self._ended.values())])
