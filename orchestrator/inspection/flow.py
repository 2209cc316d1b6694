"""Ends of a script, function or loop before its last line."""

from __future__ import annotations

from typing import Literal

Cause = Literal["exit", "command", "expansion"]
"""Cause of a shell's end. `exit`: redirections stay for the EXIT trap. `command`: a simple command
failed under `set -e`, and redirections of simple commands end first. `expansion`: an unset
variable, and all redirections end first."""


class Flow(Exception):
    """The end of a script, function or loop before its last line."""


class Exit(Flow):
    def __init__(self, status: int | None, cause: Cause = "exit") -> None:
        self.status = status
        self.cause = cause


class Return(Flow):
    def __init__(self, status: int | None) -> None:
        self.status = status


class Break(Flow):
    """`loops`: the number of loops that end."""

    def __init__(self, loops: int = 1) -> None:
        self.loops = loops


class Continue(Break):
    """Of the last of `loops` the next round starts."""
