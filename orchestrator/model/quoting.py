"""Values enter shell scripts only through here.

Templates print only `Shell` text and whole numbers: `only_quoted`, the environment's `finalize`
hook, refuses everything else, so a template without a filter fails in its first test.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from orchestrator.errors import RenderError
from orchestrator.model.values import NAME, EnvValue, Minutes, Text, Unique


class Shell(str):
    """Safe at its place in the template."""


def quote(value: object) -> Shell:
    """Return a bash word that expands to exactly `value`, for any characters.

    Raises RenderError for NUL, which no shell word and no environment can hold.
    """
    text = str(value)
    if "\0" in text:
        raise RenderError(
            f"a value contains a NUL byte and cannot be written into a script: {text!r}"
        )
    return Shell(shlex.quote(text))


def quote_list(values: Iterable[object]) -> Shell:
    """Quote words for a bash array: `(a 'b c')` without the parentheses."""
    return Shell(" ".join(quote(value) for value in values))


def env_value(value: EnvValue) -> Shell:
    """Return the right-hand side of `export NAME=`."""
    if isinstance(value, Text):
        return quote(value.text)
    if isinstance(value, Unique):
        return Shell(f'{quote(value.prefix)}"$(date +%s%N)"')
    if isinstance(value, Minutes):
        return Shell(f'"$(({value.fixed} + ${{NEXP:-1}} * {value.per_run}))"')
    raise RenderError(f"not a value of an environment: {value!r}")


def sbatch_value(value: object) -> Shell:
    """Quote an option for a `#SBATCH` line. Slurm splits it like a shell, but a comment cannot span
    lines.

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
    """As Jinja's `finalize`, accept only this module's results and whole numbers."""
    if isinstance(value, Shell) or type(value) is int:
        return value
    raise RenderError(f"a template prints a value that went through no quoting filter: {value!r}")


def name(value: object) -> Shell:
    """Check a variable name again, after the models. Raises RenderError."""
    text = str(value)
    if not NAME.fullmatch(text):
        raise RenderError(f"not a variable name: {text!r}")
    return Shell(text)


FILTERS = {
    "q": quote,
    "qlist": quote_list,
    "env_value": env_value,
    "sbatch": sbatch_value,
    "comment": comment,
    "name": name,
}
