"""A job's groups: the state that they share."""

from __future__ import annotations

from collections.abc import Iterable


class SharedByGroups:
    """Unassigned nodes, pulls, and the wait for each other. Groups are numbers."""

    def __init__(self) -> None:
        self.pool: list[str] = []
        """Unassigned nodes."""
        self.behind: set[int] = set()
        """Groups whose first runs the others did not await."""
        self._awaited: set[int] = set()
        """Groups not yet ready for the first time."""
        self._pulls: dict[int, int] = {}
        """Group -> number of pulls."""

    def divide(self, groups: Iterable[int], pool: Iterable[str]) -> None:
        """Form groups, and leave `pool` unassigned."""
        self._awaited, self.pool = set(groups), list(pool)

    # ---- unassigned nodes ----

    def take_node(self) -> str:
        return self.pool.pop(0)

    def add_nodes(self, nodes: Iterable[str]) -> None:
        self.pool += nodes

    # ---- first runs ----

    def arrive(self, group: int) -> None:
        self._awaited.discard(group)

    @property
    def awaits_groups(self) -> bool:
        return bool(self._awaited)

    def leave_behind(self) -> None:
        """Stop waiting for the missing groups."""
        self.behind |= self._awaited

    def is_reference(self, other: int, group: int) -> bool:
        """Return whether `group` must be like `other`."""
        return other != group and not {other, group} <= self.behind

    # ---- pulls ----

    def pulls_of_others(self, group: int) -> int:
        return sum(count for other, count in self._pulls.items() if other != group)

    def set_pulls(self, group: int, count: int) -> None:
        self._pulls[group] = count

    def end_pulls(self, group: int) -> None:
        self._pulls.pop(group, None)
