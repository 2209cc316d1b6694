"""What the nodes of an attempt have said of it."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel.events import Event, NetworkUse, Pulse, number
from ..policy.outcome import ENDED_BY_US
from ..policy.said import line


class Going:
    """An attempt that is going on: what its nodes have said of it."""

    def __init__(self, run: int, number: int, ranks: Sequence[str]) -> None:
        self.run, self.number, self.ranks = run, number, tuple(ranks)
        self.id, self._members = f"{run}.{number}", frozenset(ranks)
        self.prepared: dict[str, list[str]] = {}
        self.refused: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        """node -> its own reason why it cannot go on, such as storage that it could not write to."""
        self.kept: set[str] = set()
        """Refused because they cannot drop their caches at all: a new container would not help."""
        self.waits_for_all = True
        """Who is not ready for the run has had its time for it."""
        self.exits: dict[str, int] = {}
        self.stops: dict[str, str] = {}
        self.is_stopped = self.was_signalled = False
        """By this loop; by a signal of somebody else before that, as Slurm's to a job that it ends."""
        self.lasted: dict[str, int] = {}
        """Milliseconds from start to end, by the node's clock."""
        self.pulses: dict[str, Pulse] = {}
        self.has_news = True
        """Something has come in since it was last decided whether to end the run."""
        self.stage: tuple[int, ...] | None = None
        """Of the run's silence, as recorded last."""
        self.pulse_due = 0.0
        """When the next `pulse` is to be recorded (time.monotonic())."""
        self.transports: dict[str, NetworkUse] = {}
        self.doing: dict[str, str] = {}
        """What the processes of a node do in a run that hangs, "" where nothing tells."""
        self.ended = ""
        """Why the loop ends it."""
        self.sockets: list[str] = []
        """The nodes that do not use RDMA, where that ends it."""

    def take(self, event: Event) -> None:
        """Take in a word of a node; what is of another attempt, or not whole, changes nothing."""
        node, parts = event.node, event.parts
        if node not in self._members:
            return
        self.has_news = True
        if event.word in ("failed", "gone", "left"):
            self.refused.setdefault(node, event.part(1) or event.part(0) or "it let go")
            if event.word == "failed":
                self.failed[node] = self.refused[node]
        elif parts[0] != self.id:
            return
        elif event.word == "transport" and len(parts) == 4 and (counts := _numbers(parts[1:3])):
            self.transports[node] = NetworkUse(counts[0], counts[1], line(parts[3], 200))
        elif event.word == "evidence" and len(parts) == 2:
            self.doing[node] = line(parts[1], 300)
        elif event.word == "prepared" and len(parts) == 4:
            self.prepared[node] = parts[1:]
        elif event.word in ("refused", "kept") and len(parts) == 2:
            self.refused[node] = parts[1]
            self.kept |= {node} if event.word == "kept" else set()
        elif event.word == "exit" and len(parts) == 5 and (code := number(parts[1], 3)) is not None and code >= 0:
            self.exits[node], self.stops[node] = code, parts[4]
            self.was_signalled |= code == ENDED_BY_US and not self.is_stopped
            began, ended = number(parts[2]), number(parts[3])
            if began is not None and ended is not None:
                self.lasted[node] = max(0, ended - began)

    def take_pulse(self, node: str, attempt: str, pulse: Pulse) -> None:
        """Take in a node's pulse in `attempt`, from its answer to a ping."""
        if attempt == self.id and node in self._members:
            self.pulses[node], self.has_news = pulse, True


def _numbers(texts: Sequence[str]) -> list[int]:
    """Return them as numbers from 0 on, [] where one is none."""
    if not all(text.isascii() and text.isdigit() and len(text) <= 15 for text in texts):
        return []
    return list(map(int, texts))
