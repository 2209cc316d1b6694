"""A command's description, which ends its module: COMMAND = Command(...)."""

from __future__ import annotations

from orchestrator.errors import ExitCode
from orchestrator.frozen import Frozen
from orchestrator.words import quoted

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Mapping, Sequence

SCORED = {ExitCode.OK: "a valid score", ExitCode.NO_SCORE: "no valid score"}
"""Exit codes of commands that run and score a set."""


class Action:
    """An action of a command, its first word. `options`: arguments that not all actions take."""

    def __init__(self, text: str, options: str) -> None:
        self.text = text
        self.options = options


class HelpPage(Frozen):
    """The texts of --help around the arguments; `hidden`: arguments left out."""

    prog: str
    description: str
    epilog: str
    hidden: frozenset[str] = frozenset()
    prefix: str = ""
    """Dropped from the help of arguments."""

    def argument(self, names: Sequence[str], text: str) -> str:
        """Return an argument's help, or SUPPRESS."""
        from argparse import SUPPRESS

        return SUPPRESS if self.hidden & {*names} else text.removeprefix(self.prefix)


class Command:
    """A command; cli/index.py has its line in `orchestrator --help`.

    `help` is the module's docstring, which ends with an example. `run` returns an ExitCode.
    `codes`: exit codes with a special meaning. `actions` are listed after the first paragraph.
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
        lines = iter(self.help.partition("\nexample:\n")[2].splitlines())
        for line in lines:
            if line.split()[1:3] == [self.name, action]:
                yield line
                while line.endswith("\\"):
                    yield (line := next(lines))

    def page(self, action: str = "") -> HelpPage:
        """Return the help of the command, or of an action: its arguments alone, its examples."""
        prog = f"orchestrator {self.name}"
        if not action:
            return HelpPage(prog, self.help, self.epilog)
        from textwrap import wrap

        mine = self.actions[action].options.split()
        special = {name for each in self.actions.values() for name in each.options.split()}
        text = self.actions[action].text
        lines = [*wrap(f"{text[0].upper()}{text[1:]}.", 100), "", "example:"]
        return HelpPage(
            f"{prog} {action}",
            "\n".join([*lines, *self.examples(action)]),
            f"all actions: orchestrator help {quoted(self.name)}",
            frozenset({"action", *special} - {*mine}),
            f"{action}: ",
        )

    @property
    def verdict(self) -> bool:
        """Return whether 0 is a verdict, not to be returned without a reader."""
        return ExitCode.OK in self.codes

    @property
    def epilog(self) -> str:
        if not self.codes:
            return ""
        lines = [f"  {int(code):<3}  {text}" for code, text in sorted(self.codes.items())]
        return "\n".join(["exit codes:", *lines, "  others: orchestrator docs exit-codes"])
