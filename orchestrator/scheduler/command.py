"""Run a scheduler command: clean environment, hard time-out, an answer or a detailed error."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import Fix, SchedulerBusy, SchedulerError, SchedulerUnknown

KEPT_SLURM = frozenset({"SLURM_CONF"})
"""The client's cluster. Other SLURM_*/SBATCH_* variables of the caller would change our request: a
shell inside an allocation has SLURM_JOB_ID and friends, and sbatch takes options from SBATCH_*."""

MOST_LINES = 3
MOST_CHARACTERS = 600
"""Of a command's output: the first of its last lines often names the problem, the last sums up."""

SCHEDULER_PREFIXES = (
    "SLURM_",
    "SBATCH_",
    "SQUEUE_",
    "SCANCEL_",
    "SALLOC_",
    "SRUN_",
    "PMI_",
    "PMIX_",
)
E = TypeVar("E", bound=SchedulerError)


@dataclass(frozen=True)
class Answer:
    """A command's output. Undecodable bytes are replaced."""

    argv: list[str]
    returncode: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        return (
            last_lines(self.stderr or self.stdout) or f"exit code {self.returncode} and no message"
        )


def last_lines(output: str, most: int = MOST_LINES) -> str:
    """Return the last lines on one line, without control characters."""
    lines = [_printable(line).strip() for line in output.splitlines()]
    different = list(dict.fromkeys(filter(None, lines)))
    return "; ".join(different[-most:])[-MOST_CHARACTERS:]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def without_scheduler_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Drop variables that a scheduler's commands read as options."""
    return {
        name: value
        for name, value in env.items()
        if name in KEPT_SLURM or not name.startswith(SCHEDULER_PREFIXES)
    }


def not_on_path(argv: list[str], otherwise: str) -> SchedulerError:
    """Return the error for a missing program; `otherwise`: the way without it."""
    hint = f"run this on a login node of the cluster, or {otherwise}"
    return SchedulerError(f"`{argv[0]}` is not on PATH", argv=argv, hint=hint)


def ask(
    argv: list[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    given: str = "",
) -> Answer:
    """Run `argv` in exactly `env` (default: the caller's, cleaned), whatever its exit code.
    `given`: standard input, with surrogates for bytes that are no text.

    Raises SchedulerError for a missing program, SchedulerUnknown after `timeout_s`.
    """
    if env is None:
        # Seconds since 1970, not local time, and messages in English.
        env = {**without_scheduler_variables(os.environ), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            argv,
            input=given.encode("utf-8", "surrogateescape"),
            capture_output=True,
            timeout=timeout_s,
            env=env,
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as error:
        raise not_on_path(argv, "use a site file with `scheduler: local`") from error
    except PermissionError as error:
        raise SchedulerError(f"`{argv[0]}` cannot be run: {error.strerror}", argv=argv) from error
    except subprocess.TimeoutExpired as error:
        streams = [
            part.decode("utf-8", "replace") if isinstance(part, bytes) else ""
            for part in (error.stderr, error.stdout)
        ]
        complaint = last_lines(streams[0])
        raise SchedulerUnknown(
            f"`{shlex.join(argv[:1])}` did not answer within {timeout_s:g} s"
            + (f"; its message: {complaint}" if complaint else ""),
            argv=argv,
            stderr=streams[0],
            stdout=streams[1],
            hint="the state is unknown, which is no error of the set: ask again later",
        ) from error
    texts = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
    return Answer(argv, done.returncode, *(text.replace("\r\n", "\n") for text in texts))


def refused(
    answer: Answer, action: str, *, hint: str = "", fix: Fix | None = None
) -> SchedulerError:
    return _failure(SchedulerError, answer, action, hint, fix)


def busy(answer: Answer, action: str, *, hint: str = "") -> SchedulerBusy:
    return _failure(SchedulerBusy, answer, action, hint)


def unknown(answer: Answer, action: str, *, hint: str = "ask again later") -> SchedulerUnknown:
    return _failure(SchedulerUnknown, answer, action, hint)


def _failure(kind: type[E], answer: Answer, action: str, hint: str, fix: Fix | None = None) -> E:
    return kind(f"{action}: {answer.complaint}", **vars(answer), hint=hint, fix=fix)
