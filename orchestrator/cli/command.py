"""A command's description, at the end of its module: COMMAND = Command(...)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import ExitCode

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping

SCORED = {ExitCode.OK: "a valid score", ExitCode.NO_SCORE: "no valid score"}
"""Exit codes of commands that run a set and score it."""


class Command:
    """A command of `orchestrator`.

    Its line in `orchestrator --help` is in cli/index.py. `help` is the module's docstring, which
    ends with an example. `arguments` adds arguments to a parser. `run` returns an ExitCode, and
    raises OrchestratorError for errors of users. `codes` are the exit codes with a meaning of their
    own, as --help lists them.
    """

    def __init__(
        self,
        name: str,
        help: str | None,
        arguments: Callable[[ArgumentParser], None],
        run: Callable[[Namespace], int],
        codes: Mapping[ExitCode, str] | None = None,
    ) -> None:
        self.name = name
        self.help = help or name
        self.arguments = arguments
        self.run = run
        self.codes = dict(codes or {})

    @property
    def verdict(self) -> bool:
        """Return whether exit code 0 is a verdict: without a reader such a command may not
        return it."""
        return ExitCode.OK in self.codes

    @property
    def epilog(self) -> str:
        """Return the exit codes as lines below the arguments."""
        if not self.codes:
            return ""
        lines = [f"  {int(code):<3}  {text}" for code, text in sorted(self.codes.items())]
        return "\n".join(["exit codes:", *lines, "  others: orchestrator docs exit-codes"])
