"""Reasons for refusing a package, and the names and sizes that MLCommons' repository accepts."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import ExitCode, InputError

LARGEST = 50 * 1000 * 1000
"""Bytes. The limit is 50 MB; its smaller reading is safe in both."""
LONGEST_NAME = 255


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


def name_problem(name: str, what: str) -> str:
    if not name:
        return f"the {what} has no name"
    if name.startswith("."):
        return f"the {what} `{name}` starts with a dot"
    if any(character.isspace() for character in name):
        return f"the {what} `{name}` contains a space"
    if (
        "/" in name
        or "\\" in name
        or not name.isprintable()
        or len(name.encode("utf-8", "replace")) > LONGEST_NAME
    ):
        return f"the {what} {name[:60]!r} is no name for a folder"
    return ""


def tree_problems(files: dict[str, bytes]) -> list[str]:
    """Return problems of names and sizes; `files`: path -> content."""
    problems = []
    for path, content in files.items():
        problems += [
            f"{path}: {problem}"
            for part in path.split("/")
            if (problem := name_problem(part, "file or folder"))
        ]
        if len(content) > LARGEST:
            problems.append(f"{path}: {len(content) / 1e6:.1f} MB, at most 50 MB are accepted")
    return problems
