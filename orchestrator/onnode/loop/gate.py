"""Before a run: whether every node has verified its settings and dropped its caches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..kernel.events import Event

_HELP = "; run as root, give the site a sudo prefix, or set clear_caches: false"


class Gate:
    """What the nodes of an attempt answer to the request to get ready for it."""

    def __init__(self, run: int, ranks: Sequence[str]) -> None:
        self.run, self.ranks = run, tuple(ranks)
        self.prepared: dict[str, list[str]] = {}
        """node -> when it was ready (ms), KiB in its caches before and after it dropped them."""
        self.failed: dict[str, str] = {}
        """node -> its own reason why it cannot go on, such as storage that it cannot write to."""
        self.kept: set[str] = set()
        """Refused because they cannot drop their caches at all: a new container would not help."""
        self._refused: dict[str, str] = {}
        self._waits_for_all = True
        """Who has not answered has had its time for it."""

    def take(self, event: Event) -> None:
        """Take in a word of a node of this attempt."""
        node, parts = event.node, event.parts
        if event.word in ("failed", "gone", "left"):
            self._refused.setdefault(node, event.part(1) or event.part(0) or "it let go")
            if event.word == "failed":
                self.failed[node] = self._refused[node]
        elif event.word == "prepared" and len(parts) == 4:
            self.prepared[node] = parts[1:]
        elif event.word in ("refused", "kept") and len(parts) == 2:
            self._refused[node] = parts[1]
            if event.word == "kept":
                self.kept.add(node)

    def take_ended(self, reasons: Mapping[str, str]) -> None:
        """Take in nodes whose container has ended since the last run: they have said so before."""
        self._refused = dict(reasons)

    def take_gone(self, reasons: Mapping[str, str]) -> None:
        """Take in nodes that are gone: the others are not waited for, and not to blame."""
        self._refused = {**reasons, **self._refused}
        self._waits_for_all = False

    def unheard(self) -> list[str]:
        """Return the nodes that have not answered."""
        return [
            node for node in self.ranks if node not in self.prepared and node not in self._refused
        ]

    def refusals(self, *more: str) -> str:
        """Return a sentence for each node that is not ready, in rank order, and `more`."""
        return "; ".join([*self._sentences(), *more])

    def _sentences(self) -> Iterable[str]:
        for rank, node in enumerate(self.ranks):
            reason = self._refused.get(node, "")
            if node in self.kept:
                yield f"node {node} (rank {rank}) {reason}{_HELP}"
            elif reason:
                yield f"node {node} (rank {rank}): {reason}"

    def not_ready(self) -> dict[str, str]:
        """Return why each node was not ready, as words about the node."""
        found = {}
        for node, reason in self._refused.items():
            found[node] = f"before run {self.run}{' it' if node in self.kept else ':'} {reason}"
        if self._waits_for_all:
            late = f"it did not answer before run {self.run}"
            found.update(dict.fromkeys(self.unheard(), late))
        return found
