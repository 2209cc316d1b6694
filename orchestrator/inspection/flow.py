"""Ends of a script, function or loop before its last line."""

from __future__ import annotations

from typing import Literal

Cause = Literal["exit", "command", "expansion"]
"""What ends a shell. `command`: a simple command failed under `set -e`, and bash first ends the
redirections of the simple commands around it. `expansion`: an unset variable, and bash first ends
all redirections. `exit`: `exit`, or another failure under `set -e`; all redirections stay."""


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
    pass


class Continue(Flow):
    pass
