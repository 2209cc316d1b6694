"""A walk as its parts see it: expansions, conditions, statements, commands and programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from orchestrator.inspection.state import Shell
from orchestrator.inspection.surroundings import Surroundings
from orchestrator.inspection.trace import PathHow, Place, Trace
from orchestrator.inspection.tree import ImageTree

if TYPE_CHECKING:
    from tree_sitter import Node

Answer = bool | None
"""None: only the run knows."""


class Walk(Protocol):
    """One walk through the scripts of a command; walk.py has its methods."""

    trace: Trace
    tree: ImageTree
    around: Surroundings
    in_test: bool
    statuses: dict[tuple[str, int], int]

    def place(self, node: Node, shell: Shell) -> Place: ...

    def at_line(self, line: int) -> AbstractContextManager[None]: ...

    def nested(self) -> AbstractContextManager[bool]: ...

    def guard(self) -> AbstractContextManager[None]: ...

    def insisting(self, asked: range) -> AbstractContextManager[None]: ...

    def capture(self, node: Node, shell: Shell) -> str: ...

    def arithmetic(self, node: Node, shell: Shell) -> int | None: ...

    def path_test(self, operator: str, path: str, node: Node, shell: Shell) -> Answer: ...

    def absolute(self, shell: Shell, path: str) -> str: ...

    def has(self, path: str, *, folder: bool = False) -> Answer: ...

    def use_path(self, how: PathHow, path: str, place: Place) -> None: ...

    def make(self, path: str) -> None: ...

    def source(self, path: str, shell: Shell, how: str) -> None: ...

    def script(self, path: str, arguments: list[str], shell: Shell, how: str) -> int | None: ...

    def statements(self, node: Node, shell: Shell) -> None: ...

    def statement(self, node: Node, shell: Shell) -> None: ...

    def either(self, shell: Shell, *branches: Callable[[Shell], None]) -> None: ...

    def failed(self, shell: Shell) -> None: ...
