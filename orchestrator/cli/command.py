"""A command's description, which ends its module: COMMAND = Command(...)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import ExitCode
from orchestrator.words import quoted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Mapping

SCORED = {ExitCode.OK: "a valid score", ExitCode.NO_SCORE: "no valid score"}
"""Exit codes of commands that run and score a set."""


class Action:
    """An action of a command, its first word. `options`: those arguments that not all actions
    take."""

    def __init__(self, text: str, options: str) -> None:
        self.text = text
        self.options = options


class Command:
    """A command; cli/index.py has its line in `orchestrator --help`.

    `help` is the module's docstring, which ends with an example. `run` returns an ExitCode, and
    raises OrchestratorError for users' errors. `codes`: exit codes with a special meaning, for
    --help. `actions` are listed after the first paragraph of `help`.
    """

    def __init__(
        self,
        name: str,
        help: str | None,
        arguments: Callable[[ArgumentParser], None],
        run: Callable[[Namespace], int],
        codes: Mapping[ExitCode, str] | None = None,
        actions: Mapping[str, Action] | None = None,
    ) -> None:
        self.name = name
        self.actions = dict(actions or {})
        first, *rest = (help or name).split("\n\n")
        table = ["\n".join(self._table())] if self.actions else []
        self.help = "\n\n".join([first, *table, *rest])
        self.arguments = arguments
        self.run = run
        self.codes = dict(codes or {})

    def _table(self) -> Iterator[str]:
        from textwrap import wrap

        width = max(map(len, self.actions)) + 4
        for name, action in self.actions.items():
            first, *rest = wrap(action.text, 100 - width)
            yield f"  {name}".ljust(width) + first
            yield from (" " * width + line for line in rest)

    def examples(self, action: str) -> Iterator[str]:
        """Yield the lines of this action's examples."""
        lines = iter(self.help.partition("\nexample:\n")[2].splitlines())
        for line in lines:
            if line.split()[1:3] == [self.name, action]:
                yield line
                while line.endswith("\\"):
                    yield (line := next(lines))

    def narrow(self, parser: ArgumentParser, action: str) -> None:
        """Let `parser` explain one action: its options alone, its examples."""
        from argparse import SUPPRESS
        from textwrap import wrap

        mine = self.actions[action].options.split()
        others = {name for one in self.actions.values() for name in one.options.split()} - {*mine}
        for argument in vars(parser)["_actions"]:
            if argument.dest == "action" or others & {*argument.option_strings, argument.dest}:
                argument.help = SUPPRESS
            else:
                argument.help = argument.help.removeprefix(f"{action}: ")
        text = self.actions[action].text
        parser.prog += f" {action}"
        lines = [*wrap(f"{text[0].upper()}{text[1:]}.", 100), "", "example:"]
        parser.description = "\n".join([*lines, *self.examples(action)])
        parser.epilog = f"all actions: orchestrator help {quoted(self.name)}"

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
