"""A shell process's state during a walk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.inspection.streams import Streams
from orchestrator.inspection.trace import MOST_VALUE, UNKNOWN
from orchestrator.inspection.variables import Variables

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Function:
    body: Node
    file: str
    redirects: tuple[Node, ...] = ()


@dataclass
class Frame:
    """A shell's script, current file and arguments."""

    script: str
    source: str = ""
    """Not `script` in sourced files."""
    callers: tuple[str, ...] = ()
    """Files that source it, innermost first."""
    positional: list[str] = field(default_factory=list)
    loops: int = 0
    """Around the current statement."""

    def copy(self) -> Frame:
        return replace(self, positional=list(self.positional))

    def set_arguments(self, arguments: list[str]) -> None:
        self.positional = arguments if len(arguments) <= MOST_VALUE else [UNKNOWN]

    def shift(self, count: int) -> bool:
        """Drop arguments; return False if there are fewer."""
        if count > len(self.positional):
            return False
        self.positional = self.positional[count:]
        return True

    @contextmanager
    def sourcing(self, path: str) -> Iterator[None]:
        before = self.source, self.callers
        if path != self.source:  # a started script is its own source already
            self.source, self.callers = path, (self.source, *self.callers)
        try:
            yield
        finally:
            self.source, self.callers = before

    @contextmanager
    def calling(self, function: Function, arguments: list[str]) -> Iterator[None]:
        before = self.source, self.loops
        self.source, self.loops = function.file, 0
        try:
            with self.with_arguments(arguments):
                yield
        finally:
            self.source, self.loops = before

    @contextmanager
    def looping(self) -> Iterator[None]:
        before = self.loops
        self.loops = before + 1
        try:
            yield
        finally:
            self.loops = before

    @contextmanager
    def with_arguments(self, arguments: list[str]) -> Iterator[None]:
        before, self.positional = self.positional, arguments
        try:
            yield
        finally:
            self.positional = before


_LETTERS = {"e": "errexit", "u": "nounset", "a": "allexport", "f": "noglob", "E": "errtrace"}


def take_options(options: set[str], arguments: list[str]) -> set[str]:
    """Move options such as `-eo pipefail` from the front of `arguments`; return other letters."""
    others = set()
    while arguments and re.fullmatch(r"[-+][a-zA-Z]+", arguments[0]):
        word = arguments.pop(0)
        change = options.add if word[0] == "-" else options.discard
        for letter in word[1:]:
            if letter in "oO" and arguments:
                change(arguments.pop(0))
            elif letter in _LETTERS:
                change(_LETTERS[letter])
            else:
                others.add(letter)
    return others


@dataclass
class ShellState:
    """A shell's state. Subshells and processes get copies."""

    frame: Frame
    cwd: str
    variables: Variables = field(default_factory=Variables)
    functions: dict[str, Function] = field(default_factory=dict)
    options: set[str] = field(default_factory=set)
    streams: Streams = field(default_factory=Streams)
    status: int | None = 0
    jobs: list[int | None] = field(default_factory=list)
    """Exit statuses; None if unknown."""
    traps: dict[str, tuple[str, int]] = field(default_factory=dict)
    """EXIT or ERR -> the commands of `trap`, and its line."""

    def copy(self) -> ShellState:
        return replace(
            self,
            frame=self.frame.copy(),
            variables=self.variables.copy(),
            functions=dict(self.functions),
            options=set(self.options),
            streams=self.streams.copy(),
            jobs=list(self.jobs),
            traps=dict(self.traps),
        )

    def subshell(self) -> ShellState:
        """Return a copy without the traps, and outside of loops."""
        inner = replace(self.copy(), jobs=[], traps={})
        inner.frame.loops = 0
        return inner

    def child(
        self,
        script: str,
        arguments: list[str],
        source: str | None = None,
        options: Iterable[str] = (),
    ) -> ShellState:
        """`source`: the file with the script's text."""
        frame = Frame(script, script if source is None else source, (), arguments)
        functions = {
            name: function
            for name, function in self.functions.items()
            if f"{name}()" in self.variables.exported
        }
        return ShellState(
            frame,
            self.cwd,
            self.variables.for_child(),
            functions,
            set(options),
            streams=self.streams.copy(),
            status=self.status,
        )

    def finish(self, status: int | None) -> None:
        """Set $?; None if unknown."""
        self.status = status

    def enter(self, folder: str) -> None:
        self.variables.set("OLDPWD", self.cwd)
        self.variables.export("OLDPWD")
        self.cwd = folder

    def redirect_as(self, other: ShellState) -> None:
        """Take the redirections of another branch. Output stays."""
        text = None if other.streams.captured is None else self.streams.captured
        self.streams = replace(other.streams, captured=text)

    def merge(self, ends: list[ShellState]) -> None:
        """Continue after an undecided branch: differing values are unknown. Lists come from the
        branch without changes."""
        text = self.streams.captured
        depth = min(len(end.variables.scopes) for end in ends)
        for end in ends:  # an exit still has its functions' variables
            end.variables.end_scopes(depth)
        first, *others = ends
        for other in others:
            first._join(self, other)
        for part in ("frame", "variables", "streams"):  # restored by their holders
            vars(getattr(self, part)).update(vars(getattr(first, part)))
        self.functions, self.options, self.traps = first.functions, first.options, first.traps
        self.cwd, self.status, self.jobs = first.cwd, first.status, first.jobs
        self.streams.collect_in(text)

    def _join(self, before: ShellState, other: ShellState) -> None:
        self.variables.merge(before.variables, other.variables)
        self.streams.merge(before.streams, other.streams)
        self.functions.update(other.functions)
        self.options |= other.options
        self.traps.update(other.traps)
        if self.jobs != other.jobs:
            self.jobs = [None] * max(len(self.jobs), len(other.jobs))
        if self.frame.positional != other.frame.positional:
            self.frame.set_arguments(before.frame.positional)
        self.cwd = self.cwd if self.cwd == other.cwd else UNKNOWN
        self.status = self.status if self.status == other.status else None
