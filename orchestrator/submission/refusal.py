"""Refusal of a package."""

from __future__ import annotations

from orchestrator.errors import ExitCode, InputError


class Refused(InputError):
    """The sets are readable, but every package of them would be rejected. One problem per line."""

    exit_code = ExitCode.NO_SCORE

    def __init__(self, problems: list[str], *, hint: str = "") -> None:
        super().__init__(
            "no package was written:\n" + "\n".join(f"  - {problem}" for problem in problems),
            hint=hint,
        )
        self.problems = problems
