"""Refusal of a package."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import ExitCode, InputError


class Deviation(str):
    """A problem: the logs deviate from their description, their submitter or their ledger."""

    __slots__ = ()


class Undescribed(str):
    """A problem: a member of the system description is missing or wrong."""

    __slots__ = ()


class Refused(InputError):
    """The sets are readable, but every package of them would be rejected. One problem per line."""

    exit_code = ExitCode.NO_SCORE

    def __init__(self, problems: Sequence[str], *, hint: str = "") -> None:
        super().__init__(
            "no package was written:\n" + "\n".join(f"  - {problem}" for problem in problems),
            hint=hint,
        )
        self.problems = list(problems)
