"""Typed reading of environment variables; every error names the variable, its value and what is
accepted."""

from __future__ import annotations

from math import isfinite

from training.failures import BadSettings


class Environment:
    """A view of the variables in which the empty text counts as absent."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables

    def has(self, *names: str) -> bool:
        return all(self.variables.get(name, "") for name in names)

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of `names` that is set, else the default; BadSettings when there is neither."""
        for name in names:
            if self.variables.get(name, ""):
                return self.variables[name]
        if default is None:
            raise BadSettings(f"{' or '.join(names)} is not set")
        return default

    def integer(
        self, *names: str, default: int | None = None, low: int = 1, high: int = 1 << 62
    ) -> int:
        text = self.text(*names, default=None if default is None else str(default))
        try:
            value = int(text)
        except ValueError:
            raise BadSettings(f"{' or '.join(names)}={text!r}: expected a whole number") from None
        if not low <= value <= high:
            raise BadSettings(f"{' or '.join(names)}={text!r}: expected {low} .. {high}")
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """A positive finite number."""
        text = self.text(*names, default=None if default is None else repr(default))
        try:
            value = float(text)
        except ValueError:
            raise BadSettings(f"{' or '.join(names)}={text!r}: expected a number") from None
        if not isfinite(value) or value <= 0:
            raise BadSettings(f"{' or '.join(names)}={text!r}: expected a positive number")
        return value
