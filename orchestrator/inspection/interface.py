"""A walk as its parts see it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from orchestrator.inspection.flow import Cause
from orchestrator.inspection.run_container import RunContainer
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.trace import PathHow, Place, Trace
from orchestrator.inspection.tree import ImageTree

if TYPE_CHECKING:
    from tree_sitter import Node

Answer = bool | None
"""None: only the run knows."""


class Walk(Protocol):
    """A walk through scripts; walk.py has its methods."""

    trace: Trace
    tree: ImageTree
    around: RunContainer
    in_test: bool
    statuses: dict[tuple[str, int], int]

    def testing(self) -> AbstractContextManager[None]: ...

    def place(self, node: Node, shell: ShellState) -> Place: ...

    def at_line(self, line: int) -> AbstractContextManager[None]: ...

    def nested(self) -> AbstractContextManager[bool]: ...

    def guard(self) -> AbstractContextManager[None]: ...

    def insisting(self, asked: range) -> AbstractContextManager[None]: ...

    def capture(self, node: Node, shell: ShellState) -> str: ...

    def arithmetic(self, node: Node, shell: ShellState) -> int | None: ...

    def path_test(self, operator: str, path: str, node: Node, shell: ShellState) -> Answer: ...

    def absolute(self, shell: ShellState, path: str) -> str: ...

    def has(self, path: str, *, folder: bool = False) -> Answer: ...

    def use_path(self, how: PathHow, path: str, place: Place) -> None: ...

    def make(self, path: str, text: str | None = None) -> None: ...

    def allow(self, *paths: str) -> None: ...

    def may_execute(self, path: str) -> bool: ...

    def source(self, path: str, shell: ShellState, how: str) -> None: ...

    def script(
        self, path: str, arguments: list[str], shell: ShellState, how: str
    ) -> int | None: ...

    def keep_output(self, shell: ShellState) -> None: ...

    def process(self, shell: ShellState, body: Callable[[], None]) -> int | None: ...

    def statements(self, node: Node, shell: ShellState) -> None: ...

    def statement(self, node: Node, shell: ShellState) -> None: ...

    def either(self, shell: ShellState, *branches: Callable[[ShellState], None]) -> None: ...

    def failed(self, shell: ShellState, cause: Cause = "exit") -> None: ...
