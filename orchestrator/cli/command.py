"""A command's description, which ends its module: COMMAND = Command(...)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import ExitCode

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping

SCORED = {ExitCode.OK: "a valid score", ExitCode.NO_SCORE: "no valid score"}
"""Exit codes of commands that run and score a set."""


class Command:
    """A command; cli/index.py has its line in `orchestrator --help`.

    `help` is the module's docstring, which ends with an example. `run` returns an ExitCode, and
    raises OrchestratorError for users' errors. `codes`: exit codes with a special meaning, for
    --help.
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
        """Return whether 0 is a verdict, which the command may not return without a reader."""
        return ExitCode.OK in self.codes

    @property
    def epilog(self) -> str:
        """Return exit codes as lines below the arguments."""
        if not self.codes:
            return ""
        lines = [f"  {int(code):<3}  {text}" for code, text in sorted(self.codes.items())]
        return "\n".join(["exit codes:", *lines, "  others: orchestrator docs exit-codes"])
