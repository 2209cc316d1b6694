"""A shell's variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from orchestrator.inspection.flow import Exit
from orchestrator.inspection.trace import MOST_VALUE, UNKNOWN, bounded

Value = str | list[str] | dict[str, str]


@dataclass
class Variables:
    """`exported` also has functions, as `NAME()`."""

    by_name: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    integers: set[str] = field(default_factory=set)
    """Of `declare -i`."""
    unknown: set[str] = field(default_factory=set)
    """References, read-only variables, and those whose values bash changes: unknown once set."""
    scopes: list[dict[str, Value | None]] = field(default_factory=list)
    """Of the running functions: local variable -> its value outside."""

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def get(self, name: str) -> Value | None:
        return self.by_name.get(name)

    def scalar(self, name: str) -> str | None:
        """Return bash's $NAME; None if not set."""
        value = self.by_name.get(name)
        if isinstance(value, list):
            return value[0] if value else None
        if isinstance(value, dict):
            return value.get("0")
        return value

    def set(self, name: str, value: Value) -> None:
        if name in self.unknown:
            value = UNKNOWN
        elif isinstance(value, str):
            value = bounded(value)
        elif isinstance(value, list) and len(value) > MOST_VALUE:
            value = [UNKNOWN]
        self.by_name[name] = value

    def unset(self, name: str) -> None:
        self.by_name.pop(name, None)
        self.exported.discard(name)

    def export(self, name: str) -> None:
        self.exported.add(name)

    def copy(self) -> Variables:
        return Variables(
            dict(self.by_name),
            set(self.exported),
            set(self.integers),
            set(self.unknown),
            [dict(scope) for scope in self.scopes],
        )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A function's variables."""
        self.scopes.append({})
        try:
            yield
        except Exit:  # an EXIT trap still has them
            raise
        except BaseException:
            self._end_scope()
            raise
        self._end_scope()

    def end_scopes(self, depth: int) -> None:
        """End all but the outer `depth` functions."""
        while len(self.scopes) > depth:
            self._end_scope()

    def _end_scope(self) -> None:
        for name, value in self.scopes.pop().items():
            self.integers.discard(name)
            self.unknown.discard(name)
            if value is None:
                self.unset(name)
            else:
                self.set(name, value)

    def for_child(self) -> Variables:
        """Return the exported variables."""
        values = {name: value for name, value in self.by_name.items() if name in self.exported}
        return Variables(values, set(self.exported))

    @contextmanager
    def restored(self, names: Iterable[str]) -> Iterator[None]:
        """Restore the values of `names` at the end."""
        before = [(name, self.by_name.get(name), name in self.exported) for name in names]
        try:
            yield
        finally:
            for name, value, is_exported in before:
                self.unset(name)
                if value is not None:
                    self.set(name, value)
                if is_exported:
                    self.export(name)

    def merge(self, before: Variables, other: Variables) -> None:
        """Join another branch that started from `before`."""
        for name in self.by_name.keys() | other.by_name.keys():
            mine, theirs = self.by_name.get(name), other.by_name.get(name)
            if mine != theirs:
                self.by_name[name] = _either(before.by_name.get(name), mine, theirs)
        self.exported |= other.exported
        self.integers |= other.integers
        self.unknown |= other.unknown
        for scope, theirs_ in zip(self.scopes, other.scopes, strict=True):
            for name in scope.keys() ^ theirs_.keys():  # local in one branch
                scope[name] = UNKNOWN


def _either(before: Value | None, mine: Value | None, theirs: Value | None) -> Value:
    lists = [value for value in (mine, theirs) if isinstance(value, list)]
    if lists:
        return before if before in lists and isinstance(before, list) else max(lists, key=len)
    maps = [value for value in (mine, theirs) if isinstance(value, dict)]
    if not maps:
        return UNKNOWN
    return {
        key: _same([map_.get(key) for map_ in maps])
        for key in dict.fromkeys(key for map_ in maps for key in map_)
    }


def _same(values: list[str | None]) -> str:
    first = values[0]
    return first if first is not None and values.count(first) == len(values) else UNKNOWN
