"""The sender of each line of a step: `srun --label` gives the task, and a task runs on one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST_HELD = 100
"""Lines of a task that are held back until its node is clear. A node sends fewer before its first run."""

Take = Callable[[str, bytes], object]
"""Takes the node that sent a line ("" if unknown) and the line."""


def labelled(line: bytes, nodes: Sequence[str]) -> tuple[str, bytes]:
    """Return the node at the place of a line's label, and the line without the label; "" and the whole line if it has none.

    srun writes `TASK: ` in front of each line (and starts a new line if a node did not end its own), with blanks before the
    number if other tasks have more digits. No process of a node can change that.
    """
    label, colon, rest = line.partition(b": ")
    task = label.lstrip(b" ")
    if colon and task.isdigit() and len(task) < 8 and int(task) < len(nodes):
        return nodes[int(task)], rest
    return "", line


class Senders:
    """Passes the lines of a step on, each with the node that sent it.

    `nodes` are sorted by name, as Slurm lists the nodes of a job. The tasks of a step can have the order of slurm.conf instead,
    so a task's place in `nodes` is only a guess. A task that names the node of its place confirms it. Tasks that name one
    another's nodes, all of them, have another order, and are believed. A task that names a node whose own task has confirmed its
    place forges: its lines are passed on as those of its own place, so that the receiver sees the difference.
    """

    def __init__(self, nodes: Sequence[str], take: Take) -> None:
        self._nodes, self._take = tuple(nodes), take
        self._confirmed: dict[str, str] = {}
        """Place -> node. A place is named after the node that is expected there."""
        self._claims: dict[str, str] = {}
        """Place -> the node that its task named first, while that is not confirmed."""
        self._held: dict[str, list[bytes]] = {}

    def node_at(self, place: str) -> str:
        """Return the node at a place, or the expected one until that is confirmed."""
        return self._confirmed.get(place, place)

    def receive_labelled(self, line: bytes) -> None:
        """Pass on a line as srun writes it."""
        self.receive(*labelled(line, self._nodes))

    def receive(self, place: str, line: bytes) -> None:
        """Pass on a line of the task at `place`, or hold it back until the task's node is clear."""
        if place in self._confirmed:
            self._take(self._confirmed[place], line)
            return
        named = named_node(line)
        if not place or named not in self._nodes:
            self._take(place, line)
        elif named == place or named in self._confirmed.values():
            self._confirm({place: place})
            self._take(place, line)
        else:
            self._hold_back(place, named, line)

    def _hold_back(self, place: str, named: str, line: bytes) -> None:
        """Keep a line of a task that names the node of another place."""
        self._claims.setdefault(place, named)
        held = self._held.setdefault(place, [])
        held.append(line)
        if set(self._claims) == set(self._claims.values()):
            self._confirm(dict(self._claims))
        elif len(held) > MOST_HELD:
            self._confirm({place: place})

    def _confirm(self, places: dict[str, str]) -> None:
        """Confirm the nodes of these places, and the own place of every task that claims one of these nodes."""
        released: list[str] = []
        while places:
            self._confirmed.update(places)
            released += places
            for place in places:
                self._claims.pop(place, None)
            taken = set(places.values())
            places = {place: place for place, named in self._claims.items() if named in taken}
        for place in released:
            for line in self._held.pop(place, []):
                self._take(self._confirmed[place], line)


def named_node(line: bytes) -> str:
    """Return the node that a message is about; "" for a line that is no message."""
    cells = line.split(b"\t", 2)
    return cells[1].decode("utf-8", "replace") if len(cells) == 3 else ""
