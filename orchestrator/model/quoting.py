"""The only way of a value into a shell script.

Templates print nothing but `Shell` text and whole numbers: `only_quoted` is the environment's
`finalize` hook and refuses everything else, so a template without a filter fails in the first test
that renders it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from orchestrator.errors import RenderError
from orchestrator.model.values import NAME, EnvValue, Minutes, Text, Unique


class Shell(str):
    """Text, safe at its place in the template."""


def quote(value: object) -> Shell:
    """Return `value` as one bash word that expands to exactly its text, for any characters.

    Raises RenderError for a NUL character, which no shell word and no environment can hold.
    """
    text = str(value)
    if "\0" in text:
        raise RenderError(
            f"a value contains a NUL byte and cannot be written into a script: {text!r}"
        )
    return Shell(shlex.quote(text))


def quote_list(values: Iterable[object]) -> Shell:
    """Return the values as words for a bash array: `(a 'b c')` without the parentheses."""
    return Shell(" ".join(quote(value) for value in values))


def env_value(value: EnvValue) -> Shell:
    """Return the right-hand side of `export NAME=` for a value of an environment."""
    if isinstance(value, Text):
        return quote(value.text)
    if isinstance(value, Unique):
        return Shell(f'{quote(value.prefix)}"$(date +%s%N)"')
    if isinstance(value, Minutes):
        return Shell(f'"$(({value.fixed} + ${{NEXP:-1}} * {value.per_run}))"')
    raise RenderError(f"not a value of an environment: {value!r}")


def sbatch_value(value: object) -> Shell:
    """Return an option for a `#SBATCH` line. Slurm splits the line like a shell, but a comment
    cannot span lines.

    Raises RenderError for line ends and other control characters.
    """
    text = str(value)
    if any(not char.isprintable() for char in text):
        raise RenderError(f"a #SBATCH line cannot hold control characters: {text!r}")
    return Shell(text)


def comment(value: object) -> Shell:
    """Return text for a comment: one line, printable."""
    return Shell("".join(char if char.isprintable() else " " for char in str(value)))


def only_quoted(value: object) -> object:
    """Let through results of this module's filters and whole numbers, as Jinja's `finalize`."""
    if isinstance(value, Shell) or type(value) is int:
        return value
    raise RenderError(f"a template prints a value that went through no quoting filter: {value!r}")


def name(value: object) -> Shell:
    """Return a variable name; RenderError for an invalid one. The models check names; this is
    the last check."""
    text = str(value)
    if not NAME.fullmatch(text):
        raise RenderError(f"not a variable name: {text!r}")
    return Shell(text)
