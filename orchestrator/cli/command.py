"""What a command says about itself, at the end of its module: COMMAND = Command(...)."""

from __future__ import annotations

from orchestrator.errors import ExitCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping


class Command:
    """A command of `orchestrator`.

    name the word on the command line summary its line in `orchestrator --help`; equals the one in
    the index of cli/__init__.py (a test compares) help the text above the arguments in its own
    --help, ending with an example; the module's docstring arguments adds its arguments to a parser
    run does it and returns an ExitCode; raises OrchestratorError for what a user can cause codes
    exit codes that mean something of its own, as its --help lists them
    """

    def __init__(
        self,
        name: str,
        summary: str,
        help: str | None,
        arguments: Callable[[ArgumentParser], None],
        run: Callable[[Namespace], int],
        codes: Mapping[ExitCode, str] | None = None,
    ) -> None:
        self.name = name
        self.summary = summary
        self.help = help or summary
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
