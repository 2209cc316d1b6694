"""A job's groups: the state that they share."""

from __future__ import annotations

from collections.abc import Iterable

from ..policy.reports import Check


class SharedByGroups:
    """Unassigned nodes, the image, checks, pulls, and the wait for each other. Groups are
    numbers."""

    def __init__(self) -> None:
        self.side_by_side = False
        self.left: set[int] = set()
        """Groups that start no more runs."""
        self.pool: list[str] = []
        """Unassigned nodes."""
        self.behind: set[int] = set()
        """Groups whose first runs the others did not await."""
        self.image = ""
        """The image's identity."""
        self.rows: dict[str, dict[str, Check]] = {}
        """Node -> check -> result."""
        self._awaited: set[int] = set()
        """Groups not yet ready for the first time."""
        self._pulls: dict[int, int] = {}
        """Group -> number of pulls."""

    def divide(self, groups: Iterable[int], pool: Iterable[str]) -> None:
        """Form groups, and leave `pool` unassigned."""
        self._awaited, self.pool = set(groups), list(pool)
        self.side_by_side = len(self._awaited) > 1

    def leave(self, group: int) -> None:
        self.left.add(group)

    def take_image(self, image: str) -> None:
        """Set the image's identity; "" keeps it."""
        self.image = image or self.image

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
