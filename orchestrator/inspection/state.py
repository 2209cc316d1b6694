"""A shell process's state during a walk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.inspection.trace import UNKNOWN

if TYPE_CHECKING:
    from tree_sitter import Node

Value = str | list[str] | dict[str, str]

LOG = "log"
NOWHERE = "/dev/null"


class Flow(Exception):
    """The end of a script, function or loop before its last line."""


class Exit(Flow):
    def __init__(self, status: int | None) -> None:
        self.status = status


class Return(Flow):
    def __init__(self, status: int | None) -> None:
        self.status = status


class Break(Flow):
    pass


class Continue(Flow):
    pass


@dataclass(frozen=True, slots=True)
class Function:
    body: Node
    file: str


@dataclass
class ShellState:
    """A shell's state. Subshells and processes get copies."""

    script: str
    cwd: str
    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Function] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    options: set[str] = field(default_factory=set)
    source: str = ""
    """The file whose lines run now: not `script` in sourced files."""
    callers: tuple[str, ...] = ()
    """The files that source it, innermost first."""
    out: str = LOG
    err: str = LOG
    captured: list[str] | None = None
    """Standard output, inside a command substitution or pipe."""
    stdin: list[str] | None = None
    """The lines to read; None if unknown."""
    status: int | None = 0
    jobs: list[int | None] = field(default_factory=list)
    """Exit statuses of programs in the background."""
    traps: dict[str, tuple[str, int]] = field(default_factory=dict)
    """EXIT or ERR -> the commands of `trap`, and its line."""

    def copy(self) -> ShellState:
        return replace(
            self,
            variables=dict(self.variables),
            exported=set(self.exported),
            functions=dict(self.functions),
            positional=list(self.positional),
            options=set(self.options),
            jobs=list(self.jobs),
            traps=dict(self.traps),
            stdin=None if self.stdin is None else list(self.stdin),
        )

    def child(self, script: str, arguments: list[str]) -> ShellState:
        shell = self.copy()
        shell.script = shell.source = script
        shell.callers = ()
        shell.positional = arguments
        shell.options = set()
        shell.jobs, shell.traps = [], {}
        shell.variables = {
            name: value for name, value in self.variables.items() if name in self.exported
        }
        shell.functions = {
            name: body for name, body in self.functions.items() if f"{name}()" in self.exported
        }
        return shell

    def scalar(self, name: str) -> str | None:
        """Return bash's $NAME; None if not set."""
        value = self.variables.get(name)
        if isinstance(value, list):
            return value[0] if value else None
        if isinstance(value, dict):
            return value.get("0")
        return value

    def subshell(self) -> ShellState:
        """Return a copy for another process, without the traps."""
        shell = self.copy()
        shell.jobs, shell.traps = [], {}
        return shell

    def write(self, text: str) -> None:
        if self.captured is not None:
            self.captured.append(text)


def joined(before: ShellState, ends: list[ShellState]) -> ShellState:
    """Return the state after an undecided branch: differing values are unknown. Lists come from the
    branch without changes, to have something to continue with."""
    first, *others = ends
    for other in others:
        for name in first.variables.keys() | other.variables.keys():
            mine, yours = first.variables.get(name), other.variables.get(name)
            if mine != yours:
                first.variables[name] = _either(before.variables.get(name), mine, yours)
        first.exported |= other.exported
        first.functions.update(other.functions)
        first.options |= other.options
        first.traps.update(other.traps)
        if first.jobs != other.jobs:
            first.jobs = [None] * max(len(first.jobs), len(other.jobs))
        if first.positional != other.positional:
            first.positional = before.positional
        for name in ("cwd", "out", "err"):
            if getattr(first, name) != getattr(other, name):
                setattr(first, name, UNKNOWN)
        if first.status != other.status:
            first.status = None
        if first.captured != other.captured and before.captured is not None:
            first.captured = [*before.captured, UNKNOWN]
        if first.stdin != other.stdin:
            first.stdin = None
    return first


def _either(before: Value | None, mine: Value | None, yours: Value | None) -> Value:
    lists = [one for one in (mine, yours) if isinstance(one, list)]
    if lists:
        return before if before in lists and isinstance(before, list) else max(lists, key=len)
    both = [one for one in (mine, yours) if isinstance(one, dict)]
    if both:
        values: dict[str, set[str]] = {}
        for one in both:
            for name, value in one.items():
                values.setdefault(name, set()).add(value)
        return {
            name: found.pop() if len(found) == 1 and all(name in one for one in both) else UNKNOWN
            for name, found in values.items()
        }
    return UNKNOWN
