"""Records of a script's walk: variables read, programs started, paths used, downloads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

UNKNOWN = "\ue000"
"""In a value: a part that only the run knows."""


def is_known(text: str) -> bool:
    return UNKNOWN not in text


MOST_VALUE = 1 << 17
"""Characters: Linux passes no longer argument or variable."""


def bounded(text: str) -> str:
    return text if len(text) <= MOST_VALUE else UNKNOWN


def whole_number(text: str) -> int | None:
    """Return a plain decimal number of 64 bits, else None."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def shown(text: str) -> str:
    """Return a text for people: unknown parts are dots."""
    return text.replace(UNKNOWN, "…")


def lines_of(text: str) -> list[str] | None:
    """Return the lines of output; None if all of it is unknown."""
    if UNKNOWN in text and not text.strip(UNKNOWN + "\n"):
        return None
    return text.splitlines()


class Place(NamedTuple):
    """A line of a file in the image. `maybe`: only under an undecided condition."""

    file: str
    line: int
    maybe: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Use = Literal["plain", "test", "default", "required"]


class Read(NamedTuple):
    """`required`: the program ends without the variable; `test`: a condition asks for it; `plain`:
    empty without it."""

    name: str
    use: Use
    given: bool
    """It had a value."""
    place: Place


class Assignment(NamedTuple):
    """A set variable; `forced`: without looking at its former value."""

    name: str
    value: str
    forced: bool
    place: Place


class Start(NamedTuple):
    """A started program. `out`, `err`: places of its output, such as `log`."""

    words: tuple[str, ...]
    place: Place
    out: str
    err: str
    cwd: str = "/"
    environment: frozenset[str] = frozenset()
    """Names of its environment variables."""
    script: str = ""
    """The file that Python runs."""

    @property
    def text(self) -> str:
        return shown(" ".join(self.words))


class Missing(NamedTuple):
    """A program or script without which `start` ends. `fault`: why an existing file does not
    run."""

    what: str
    start: Start
    fault: str = ""


PathHow = Literal["read", "written", "tested", "deleted"]


class PathUse(NamedTuple):
    """`path` may end in an unknown part."""

    path: str
    how: PathHow
    place: Place


class Download(NamedTuple):
    """`switched_off_by`: the variable that stops it."""

    what: str
    place: Place
    switched_off_by: str = ""


class Undecided(NamedTuple):
    """An undecided part of the contract."""

    why: str
    place: Place


class PythonText(NamedTuple):
    """A program from `python3 -c` or standard input."""

    text: str
    place: Place


class PythonCommand(NamedTuple):
    """A program started by Python: its words, or a text for a shell."""

    program: tuple[str, ...] | str
    place: Place


@dataclass
class Trace:
    reads: list[Read] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    paths: list[PathUse] = field(default_factory=list)
    downloads: list[Download] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    python: list[PythonText] = field(default_factory=list)
    commands: list[PythonCommand] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)
    """Path of every script read -> how it is started."""
    missing: list[Missing] = field(default_factory=list)
