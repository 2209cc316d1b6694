"""Why a package is not made."""

from __future__ import annotations

from orchestrator.errors import ExitCode, InputError


class Refused(InputError):
    """The sets are readable, but no package that would be accepted can be made of them. One problem per line."""

    exit_code = ExitCode.NO_SCORE

    def __init__(self, problems: list[str], *, hint: str = "") -> None:
        super().__init__(
            "no package was written:\n" + "\n".join(f"  - {problem}" for problem in problems),
            hint=hint,
        )
        self.problems = problems
