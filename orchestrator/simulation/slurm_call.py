"""Calls and replies of simulated commands."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.simulation.slurm_job import SimJob

Options = dict[str, str]
Read = Callable[[str, Path], str]
"""Return a file's text as a host sees it."""


class Unsupported(AssertionError):
    """A missing Slurm feature."""


@dataclass(frozen=True)
class Call:
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    host: str
    uid: int
    read: Read
    given: str = ""
    """Standard input."""

    @property
    def program(self) -> str:
        return Path(self.argv[0]).name

    @property
    def operands(self) -> list[str]:
        return [word for word in self.argv[1:] if not word.startswith("-")]

    @property
    def attempts(self) -> int:
        """Return how often it asks slurmctld before it gives up."""
        of_jobs = self.operands[:2] == ["show", "job"] or any(
            word.startswith("--signal") for word in self.argv
        )
        return 2 if self.program == "squeue" or of_jobs else 1

    @property
    def user(self) -> str:
        return "root" if self.uid == 0 else f"user{self.uid}"

    def may_change(self, job: SimJob) -> bool:
        return self.uid in (0, job.request.submitter.uid)


@dataclass(frozen=True)
class Reply:
    """A reply after `delay_s`; with engine.NEVER the caller's limit ends it."""

    status: int
    out: str = ""
    err: str = ""
    delay_s: float = 0.05


class Rejected(Exception):
    """The command ends with this reply."""

    def __init__(self, status: int, err: str) -> None:
        super().__init__(err)
        self.reply = Reply(status, "", err)


def parsed(
    program: str, args: Sequence[str], known: Mapping[str, int], *, mixed: bool = True
) -> tuple[Options, list[str]]:
    """Return options and operands. `mixed`: options may follow operands. Raises Rejected."""
    options, operands, rest = Options(), list[str](), list(args)
    while rest and (mixed or not operands):
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            operands.append(word)
        elif not word.startswith("--"):
            raise Unsupported(f"{program} {word}: a short option")
        elif name not in known:
            raise _unrecognized(program, f"unrecognized option '--{name}'")
        elif known[name] and not equals and not rest:
            raise _unrecognized(program, f"option '{word}' requires an argument")
        else:
            options[name] = rest.pop(0) if known[name] and not equals else value
    return options, operands + rest


def _unrecognized(program: str, problem: str) -> Rejected:
    status = 255 if program == "sbatch" else 1
    return Rejected(status, f'{program}: {problem}\nTry "{program} --help" for more information\n')


def listed(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def signal_number(text: str) -> int:
    """Return the number of `USR1`, `SIGUSR1` or `10`, else 0."""
    if text.isdecimal():
        return int(text)
    return int(getattr(signal, f"SIG{text.removeprefix('SIG')}", 0))
