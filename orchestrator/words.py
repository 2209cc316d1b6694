"""Others' text, lines and times, for every command and page. Standard library only."""

from __future__ import annotations

import re
import time
from functools import cache
from math import isfinite

from orchestrator.onnode.kernel.plural import count as count

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from typing import Any, TextIO

UNSHOWN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
)
"""For a class of characters: control characters, lone surrogates (which cannot be encoded), and
changes of the text's direction. Not tab and line ends."""


_PLAIN = re.compile("[A-Za-z0-9_@%+=:,./-]+").fullmatch  # as shlex.quote has it, which is slow


@cache
def unshown(also: str = "") -> re.Pattern[str]:
    """Match a character of UNSHOWN or `also`. Compiling takes a twentieth of a cold `orchestrator
    status`: ask str.isprintable first."""
    return re.compile(f"[{UNSHOWN}{also}]")


def clean(text: str, *, lines: bool = False) -> str:
    """Return `text` for a terminal, hidden characters escaped: `\\x1b`. Names in files and texts in
    logs can be anybody's. Line ends and tabs stay with `lines` only: in a table they would forge
    rows."""
    in_one_line = text.replace("\n", "").replace("\t", "") if lines else text
    if in_one_line.isprintable():
        return text
    return unshown("\r" if lines else "\t\n\r").sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def quoted(value: object) -> str:
    """Quote a word for a shell: names of files and sets can be anybody's."""
    text = str(value)
    if text and _PLAIN(text):
        return text
    from shlex import quote

    return quote(text)


class Cleaned:
    """A stream that passes printed text through clean(), in its encoding."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(encodable(clean(text, lines=True), self.stream))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def encodable(text: str, stream: TextIO) -> str:
    """Escape the characters that the stream's encoding lacks."""
    if text.isascii() or not (encoding := stream.encoding):
        return text
    return text.encode(encoding, "backslashreplace").decode(encoding)


def bare(stream: TextIO) -> TextIO:
    """Return the stream itself, to draw clean text on a terminal."""
    plain: TextIO = getattr(stream, "stream", stream)
    return plain


MISSING = "–"
"""A missing value."""
LONGEST = 4000
"""The most characters of a cell."""
NARROWEST = 12
"""The least width of a folded column."""
INDENT = "    "

# ---- states ----

# kind: sign, the same in ASCII, colour (SGR)
KINDS = {
    "good": ("✓", "+", "32"),
    "bad": ("✗", "x", "31"),
    "doubtful": ("!", "!", "33"),
    "going": ("▸", ">", "36"),
    "idle": ("·", ".", "2"),
}
_STATES = {
    "good": "complete success pass passed ok valid reproduced equal same",
    "bad": "failed fail refused lost damaged infrastructure missing differs",
    "doubtful": "paused warn cancelled time_limit not_converged interrupted unknown untested boot",
    "going": "running starting ending change",
    "idle": "pending queued new skip unsupported",
}
_KIND_OF = {state: kind for kind, states in _STATES.items() for state in states.split()}


class Screen:
    """`width` in characters; None: endless, as in a pipe. `signs`: "", "ascii" or "unicode"."""

    def __init__(self, width: int | None = None, *, colour: bool = False, signs: str = "") -> None:
        self.width, self.colour, self.signs = width, colour, signs

    def sign(self, state: str) -> str:
        """Return `✓ complete` if signs are shown."""
        kind = kind_of(state)
        return f"{KINDS[kind][self.signs == 'ascii']} {state}" if kind and self.signs else state

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text

    def state(self, text: str) -> str:
        """Add sign and colour to a state."""
        return self.paint(self.sign(text), colour_of(text))


PIPE = Screen()


def kind_of(state: str) -> str:
    """Return a key of KINDS, or ""."""
    return _KIND_OF.get(state.replace(" ", "_"), "")


def colour_of(state: str) -> str:
    """Return an SGR code, or ""."""
    kind = kind_of(state)
    return KINDS[kind][2] if kind else ""


# ---- lines ----


def cell(value: object) -> str:
    """Return a printable line."""
    text = str(value)
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return text if text.isprintable() else clean(re.sub("[\\t\\n\\r]", " ", text))


def width_of(text: str) -> int:
    """Return the terminal columns of `text`."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def folded(text: str, width: int, *, whole: bool = False) -> list[str]:
    """Break `text` at blanks into lines of at most `width` characters; longer words too unless
    `whole`."""
    from textwrap import wrap

    return wrap(text, max(width, 1), break_on_hyphens=False, break_long_words=not whole) or [""]


def wrapped(line: str, width: int | None) -> list[str]:
    """Wrap prose at blanks alone, later lines indented by two more spaces. `width` None:
    endless."""
    if width is None or width_of(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    first, *rest = folded(line.strip(), width - len(indent), whole=True)
    later = folded(" ".join(rest), width - len(indent) - 2, whole=True) if rest else []
    return [f"{indent}{first}", *(f"{indent}  {part}" for part in later)]


def wrapped_on_stderr(text: str) -> str:
    """Wrap `text` if standard error is a terminal."""
    import os
    import sys

    if not (sys.stderr and sys.stderr.isatty()):
        return text
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError):
        return text
    return "\n".join(part for line in text.split("\n") for part in wrapped(line, width))


# ---- times ----

_LAST_MS = 253_402_300_799_000
"""The end of the year 9999."""


def local_clock(form: str = "%H:%M:%S") -> str:
    """Return the present on the user's clock. `form`: as for time.strftime."""
    return time.strftime(form)


def local_time(unix_ms: Any, form: str = "%H:%M:%S") -> str:
    """Return the time of Unix milliseconds on the user's clock; MISSING for other values."""
    return time.strftime(form, time.localtime(unix_ms / 1000)) if _is_time(unix_ms) else MISSING


def utc_time(unix_ms: Any, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return the time of Unix milliseconds; MISSING for other values."""
    return (
        time.strftime(f"{form} UTC", time.gmtime(unix_ms / 1000)) if _is_time(unix_ms) else MISSING
    )


def _is_time(value: Any) -> bool:
    """A file has any value, and 0 for no time."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 < value <= _LAST_MS


def minutes(value: float | None, missing: str = "-") -> str:
    """Return three digits, five for runs of seconds; `missing` for None."""
    if value is None or not isfinite(value):
        return missing
    return f"{value:.3f}" if abs(value) >= 1 else f"{value:.5f}"


def train_time(value: float | None, digits: int = 3, missing: str = "-") -> str:
    """Return `10.185 min`; below a minute, `0.840 s`."""
    if value is None or not isfinite(value):
        return missing
    return f"{value:.{digits}f} min" if abs(value) >= 1 else f"{60 * value:.{digits}f} s"


def rate(value: float, digits: int = 4) -> str:
    """Return a rate, never as a power of ten: `6.486`, `43,910,000`."""
    return f"{value:.{digits}g}" if value < 1000 else f"{float(f'{value:.{digits}g}'):,.0f}"


def duration(total_s: float, parts: int = 2, missing: str = "-") -> str:
    """Return the largest unit and the next: `0.8s`, `12s`, `3m20s`, `5h07m`, `2d04h`; `40m` for
    even minutes."""
    if not isfinite(total_s):
        return missing
    total = int(total_s)
    if total < 10:
        return f"{total_s:.1f}s"
    counts = (total // 86_400, total // 3600 % 24, total // 60 % 60, total % 60)
    first = next(index for index, count in enumerate(counts) if count)
    last = max(index for index in range(first, min(first + parts, 4)) if counts[index])
    return "".join(
        f"{counts[k]:0{1 if k == first else 2}}{'dhms'[k]}" for k in range(first, last + 1)
    )


def seconds(value: float | None, missing: str = "-") -> str:
    """Return digits to compare nodes: `4.05 s`, `52.3 s`, `110.2 min`."""
    if value is None:
        return missing
    size = abs(value)
    if size < 600:
        return f"{value:.{2 if size < 10 else 1 if size < 100 else 0}f} s"
    return f"{value / 60:.1f} min"
