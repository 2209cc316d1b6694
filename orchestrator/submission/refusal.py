"""Refusal of a package."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import ExitCode, InputError


class Deviation(str):
    """A deviation of the logs from description, submitter or ledger."""

    __slots__ = ()


class Undescribed(str):
    """A missing or wrong member of the system description."""

    __slots__ = ()


class Refused(InputError):
    """Every package of these sets would be rejected. One problem per line."""

    exit_code = ExitCode.NO_SCORE

    def __init__(self, problems: Sequence[str], *, hint: str = "") -> None:
        super().__init__(
            "no package was written:\n" + "\n".join(f"  - {problem}" for problem in problems),
            hint=hint,
        )
        self.problems = list(problems)
