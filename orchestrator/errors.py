"""The error tree and every command's exit codes.

    OrchestratorError            problem, place and remedy, shown without a traceback
    ├── UsageError               the command line
    ├── DescriptorError          documents
    ├── RenderError              bundles
    ├── SchedulerError           requests to the scheduler
    │   ├── SchedulerUnknown     no answer, which is not "no"
    │   └── SchedulerBusy        nothing taken, even after growing pauses
    ├── SetError                 a set's folder: missing, unreadable or in the wrong state
    └── InputError               logs

Packages add their own.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes, the same for every command."""

    OK = 0
    """Done; for `run` and `score`: a valid score."""
    NO_SCORE = 1
    """There is no valid score (or the check found errors)."""
    BAD_INPUT = 2
    """Command line, descriptor, site file, folder or log."""
    SCHEDULER = 3
    """The scheduler refused or failed; for `images` and `prepare`: the container engine."""
    UNKNOWN = 4
    """The scheduler or a node did not answer. Safe to ask again."""
    SET_STATE = 5
    """The set's state does not allow it (still running, already finished, paused)."""
    INTERNAL = 70
    """A file with the details is named."""
    INTERRUPTED = 130
    """Ctrl-C. The job continues; only the view ended."""


REPEATED = ("--override", "--env", "--sbatch", "--systems-dir")
"""Options that add to those of the same name."""


class Fix:
    """A command to paste that fixes an error: `command`, the typed command with other options, or
    another command."""

    def __init__(
        self,
        command: str = "",
        options: tuple[str, ...] = (),
        without: str = "",
        again: tuple[str, ...] = (),
        other: tuple[str, ...] = (),
        first: tuple[str, ...] = (),
        kept: tuple[str, ...] = ("--site",),
    ) -> None:
        """`options`: names and values in turn, replacing those of the typed command. `without`: an
        option to leave out; `options` are for a typed command that lacks it. `again`: words to add
        as they are. `other`: words of another command; `first`: the same, before the typed command
        with the options. `kept`: options that this other command takes as typed."""
        self.command, self.options = command, options
        self.without, self.again = without, again
        self.other, self.first, self.kept = other, first, kept

    @property
    def asks(self) -> bool:
        """Return whether the command asks for a value, and repeats the typed one as it is."""
        return bool(self.first) and not self.options

    def line(self, typed: Sequence[str]) -> str:
        """Return the command. `typed`: the words after `orchestrator`."""
        if self.command:
            return self.command
        from shlex import join

        another = self.other or self.first
        command = join(["orchestrator", *another, *_given(typed, self.kept)]) if another else ""
        repeated = "" if self.other else self._typed(typed)
        return " && ".join(filter(None, (command, repeated)))

    def _typed(self, typed: Sequence[str]) -> str:
        if not typed:
            return ""
        from shlex import join

        shorter = _without(typed, self.without)
        if self.without and shorter != [*typed]:
            return join(["orchestrator", *shorter])
        arguments = [*typed, *self.again]
        for name, value in zip(self.options[::2], self.options[1::2], strict=True):
            key = value.partition("=")[0] + "=" if name in REPEATED else ""
            arguments = _without(arguments, name, key)
        return join(["orchestrator", *arguments, *self.options])


def _given(typed: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return `options` with their values, as typed."""
    given: list[str] = []
    rest = iter(typed)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name in options:
            given += [word] if equals else [word, next(rest, "")]
    return given


def _without(typed: Sequence[str], option: str, key: str = "") -> list[str]:
    """Drop an option whose value starts with `key`."""
    kept: list[str] = []
    rest = iter(typed)
    for word in rest:
        name, equals, value = word.partition("=")
        if not option or name != option:
            kept.append(word)
            continue
        given = [word] if equals else [word, *([next(rest, "")])]
        if not (value if equals else given[-1]).startswith(key):
            kept += given
    return kept


class OrchestratorError(Exception):
    """Base of everything a user can cause. `hint`: the next step; `fix`: a command to paste."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, message: str, *, hint: str = "", fix: Fix | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fix = fix

    def advise(self, hint: str = "", *, fix: Fix | None = None) -> None:
        """Add a hint after the present hint; replace the fix."""
        self.hint = "; ".join(filter(None, [self.hint, hint]))
        self.fix = fix or self.fix

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(OrchestratorError):
    """The command line names something that does not exist or does not fit together."""


class DescriptorError(OrchestratorError):
    """Problems in YAML documents: `model.source.Problem`s, each printed as `file:line: key:
    what`."""

    def __init__(
        self, problems: Sequence[object], *, hint: str = "", fix: Fix | None = None
    ) -> None:
        super().__init__("\n".join(map(str, problems)), hint=hint, fix=fix)
        self.problems = list(problems)


class RenderError(OrchestratorError):
    """The bundle cannot be rendered or written."""


class SchedulerError(OrchestratorError):
    """A scheduler command failed. Keeps the command and its output."""

    exit_code = ExitCode.SCHEDULER

    def __init__(
        self,
        message: str,
        *,
        argv: list[str] | None = None,
        returncode: int | None = None,
        stdout: str = "",
        stderr: str = "",
        hint: str = "",
        fix: Fix | None = None,
    ) -> None:
        super().__init__(message, hint=hint, fix=fix)
        self.argv = argv or []
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class SchedulerUnknown(SchedulerError):
    """No answer in time, or an unreadable answer: nothing may be concluded."""

    exit_code = ExitCode.UNKNOWN


class SchedulerBusy(SchedulerError):
    """It took nothing now, for its load or a limit: safe to ask again."""


class SetError(OrchestratorError):
    exit_code = ExitCode.SET_STATE


class InputError(OrchestratorError):
    """Logs or folders given for scoring cannot be used."""


def is_full(error: OSError) -> bool:
    """Return whether the storage is full, read-only or failing: not the user's error
    (ExitCode.SET_STATE)."""
    return error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EROFS,
        errno.ESTALE,
    )


def closest(name: str, names: Iterable[str]) -> str:
    """Return the closest of `names`, or "". Case does not matter."""
    from difflib import get_close_matches

    lower = {candidate.lower(): candidate for candidate in sorted(names)}
    near = get_close_matches(name.lower(), lower, n=1)
    return lower[near[0]] if near else ""


def did_you_mean(name: str, names: Iterable[str], *, before: str = '"', after: str = '"') -> str:
    """Return `; did you mean "..."?`, or "". `before` and `after` enclose the name."""
    near = closest(name, names)
    return f"; did you mean {before}{near}{after}?" if near else ""
