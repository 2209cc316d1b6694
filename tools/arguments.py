"""What the parsers say of every command: for the reference, the completions and the man page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from orchestrator.cli import COMMANDS, command_parser  # noqa: E402


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The actions of a command that has some, such as those of `systems`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command and every action of one, by its words."""
    for name in COMMANDS:
        parser = command_parser(name)[1]
        yield name, parser
        yield from (
            (f"{name} {action}", command) for action, command in subcommands(parser).items()
        )


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Every argument of a parser that a person gives, but --help."""
    hidden = (argparse._SubParsersAction, argparse._HelpAction)
    return [
        action
        for action in parser._actions
        if not isinstance(action, hidden) and action.help != argparse.SUPPRESS
    ]


def value(action: argparse.Action) -> str:
    """What stands for the value of an argument; "" where it has none."""
    if action.nargs == 0:
        return ""
    if action.metavar:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def written(action: argparse.Action) -> str:
    """An argument as it stands on the command line."""
    names = ", ".join(action.option_strings)
    return f"{names} {value(action)}".strip()


def help_text(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())
