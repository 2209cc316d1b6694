"""Which node of a step a line comes from: `srun --label` gives the task, and this the node that the task is on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST_HELD = 100
"""Lines of one task that wait until it is known which node it is."""

Take = Callable[[str, bytes], object]
"""Takes the node that a line comes from, "" if that is not known, and the line."""


def labelled(line: bytes, nodes: Sequence[str]) -> tuple[str, bytes]:
    """Return the node that a line of `srun --label` comes from, and the line without its label; "" and the whole line without one.

    srun writes `TASK: ` in front of each line (and starts a new line where a node did not end its own), blanks before the number
    where others have more digits. No process of a node can change that. `nodes` are in the order of the tasks.
    """
    label, colon, rest = line.partition(b": ")
    task = label.lstrip(b" ")
    if colon and task.isdigit() and len(task) < 8 and int(task) < len(nodes):
        return nodes[int(task)], rest
    return "", line


class Senders:
    """Hands on the lines of a step's tasks, each with the node that it comes from.

    Slurm sorts the names of a job; the tasks of a step may have the order of slurm.conf instead. So the place of a task among
    the names says its node only as long as the task agrees. Tasks that all name one another's nodes are in another order, and are
    believed. A task that names the node of a task which agrees with its place speaks for another node: its lines are handed on
    under its own place, for whoever takes them to judge.
    """

    def __init__(self, nodes: Sequence[str], take: Take) -> None:
        self._nodes, self._take = tuple(nodes), take
        self._known: dict[str, str] = {}
        """Place -> node; a place has the name of the node that is expected there."""
        self._claims: dict[str, str] = {}
        self._held: dict[str, list[bytes]] = {}

    def name(self, place: str) -> str:
        """Return the node at a place, as far as that is known."""
        return self._known.get(place, place)

    def hear_labelled(self, line: bytes) -> None:
        self.hear(*labelled(line, self._nodes))

    def hear(self, place: str, line: bytes) -> None:
        """Take in a line without its label."""
        if place in self._known:
            self._take(self._known[place], line)
            return
        named = _named(line)
        if not place or named not in self._nodes:
            self._take(place, line)
        elif named == place or named in self._known.values():
            self._agree({place: place})
            self._take(place, line)
        else:
            self._wait(place, named, line)

    def _wait(self, place: str, named: str, line: bytes) -> None:
        """Keep a line of a task that names another place's node."""
        self._claims.setdefault(place, named)
        held = self._held.setdefault(place, [])
        held.append(line)
        if set(self._claims) == set(self._claims.values()):
            self._agree(dict(self._claims))
        elif len(held) > MOST_HELD:
            self._agree({place: place})

    def _agree(self, places: dict[str, str]) -> None:
        """Know these, and with them the places that named one of their nodes: hear what waited there."""
        heard: list[str] = []
        while places:
            self._known.update(places)
            heard += places
            for place in places:
                self._claims.pop(place, None)
            taken = set(places.values())
            places = {place: place for place, named in self._claims.items() if named in taken}
        for place in heard:
            for line in self._held.pop(place, []):
                self._take(self._known[place], line)


def _named(line: bytes) -> str:
    """Return the node that a line is about, "" of a line without one."""
    cells = line.split(b"\t", 2)
    return cells[1].decode("utf-8", "replace") if len(cells) == 3 else ""
