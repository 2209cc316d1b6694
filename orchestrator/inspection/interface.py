"""A walk as its parts see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from orchestrator.inspection.flow import Cause, Flow
from orchestrator.inspection.run_container import RunContainer
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.trace import PathHow, Place, Trace
from orchestrator.inspection.tree import ImageTree

if TYPE_CHECKING:
    from tree_sitter import Node

Answer = bool | None
"""None: only the run knows."""

End = tuple[Flow | None, ShellState]
"""The end of a loop or function, and the state there. None: after its last line."""


class Walk(Protocol):
    """A walk through scripts; walk.py has its methods."""

    trace: Trace
    tree: ImageTree
    around: RunContainer
    in_test: bool
    unread_source: bool
    """A file was sourced that was not read: it may have set and defined anything."""
    statuses: dict[tuple[str, int], int]

    def note_unread(self) -> None: ...

    def testing(self) -> AbstractContextManager[None]: ...

    def place(self, node: Node, shell: ShellState) -> Place: ...

    def at_line(self, line: int) -> AbstractContextManager[None]: ...

    def nested(self) -> AbstractContextManager[bool]: ...

    def guard(self, depth: int | None = None) -> AbstractContextManager[None]: ...

    def insisting(self, asked: range) -> AbstractContextManager[None]: ...

    def capture(self, node: Node, shell: ShellState) -> str: ...

    def arithmetic(self, node: Node, shell: ShellState) -> int | None: ...

    def evaluate(self, text: str, shell: ShellState) -> int | None: ...

    def path_test(self, operator: str, path: str, node: Node, shell: ShellState) -> Answer: ...

    def absolute(self, shell: ShellState, path: str) -> str: ...

    def has(self, path: str, *, folder: bool = False) -> Answer: ...

    def use_path(self, how: PathHow, path: str, place: Place) -> None: ...

    def make(self, path: str, text: str | None = None) -> None: ...

    def allow(self, *paths: str) -> None: ...

    def may_execute(self, path: str) -> bool: ...

    def source(self, path: str, shell: ShellState, how: str) -> None: ...

    def script(
        self,
        path: str,
        arguments: list[str],
        shell: ShellState,
        how: str,
        options: Iterable[str] = (),
    ) -> int | None: ...

    def keep_output(self, shell: ShellState) -> None: ...

    def process(
        self, shell: ShellState, body: Callable[[], None], *, keep_exits: bool = False
    ) -> int | None: ...

    def spend(self, steps: int) -> None: ...

    def statements(self, node: Node, shell: ShellState) -> None: ...

    def statement(self, node: Node, shell: ShellState) -> None: ...

    def either(self, shell: ShellState, *branches: Callable[[ShellState], None]) -> None: ...

    def ends(self, shell: ShellState, body: Callable[[], None]) -> list[End]: ...

    def join(
        self, shell: ShellState, states: list[ShellState], others: Sequence[End] = ()
    ) -> None: ...

    def returned(self, shell: ShellState, body: Callable[[], None]) -> None: ...

    def failed(self, shell: ShellState, cause: Cause = "exit") -> None: ...
