"""Take the whole terminal: single keys, and the alternate screen."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from orchestrator.cli.signals import exit_on
from orchestrator.words import bare, encodable

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
SLICE_S = 0.25
"""Delay until a new window size is noticed."""
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]?|O.?)?", re.DOTALL)
"""An arrow or function key, or Escape."""


class FullScreen:
    """A terminal's screen and keys."""

    def __init__(self, keys: bool) -> None:
        self._keys = keys
        self._typed = ""

    @property
    def size(self) -> tuple[int, int]:
        terminal = shutil.get_terminal_size()
        return terminal.columns, terminal.lines

    def show(self, lines: Sequence[str]) -> None:
        """Draw clean lines (`words.cell`), cut off at the screen's height."""
        out = bare(sys.stdout)
        # A last line end at the bottom would scroll the screen.
        body = "\x1b[K\r\n".join(encodable(line, out) for line in lines[: self.size[1]])
        out.write(f"\x1b[H{body}\x1b[K\x1b[J")
        sys.stdout.flush()

    def wait(self, seconds: float, on_key: Callable[[str], None]) -> None:
        """Call `on_key` with each pressed key, and with "" after a change of size."""
        end = time.monotonic() + seconds
        size = self.size
        while (left := end - time.monotonic()) > 0:
            key = self._key(min(left, SLICE_S))
            if key or self.size != size:
                size = self.size
                on_key(key)

    def _key(self, seconds: float) -> str:
        if not self._keys:
            time.sleep(seconds)
            return ""
        if not self._typed and select.select([sys.stdin], [], [], seconds)[0]:
            typed = os.read(sys.stdin.fileno(), 64).decode("ascii", "ignore")
            self._keys = bool(typed)  # the terminal is closed
            self._typed = _SEQUENCE.sub("", typed)
        key, self._typed = self._typed[:1], self._typed[1:]
        return key


@contextmanager
def full_screen() -> Iterator[FullScreen]:
    """Take the terminal; restore it after the block, even after SIGTERM or SIGHUP."""
    keys = sys.stdin.isatty()
    before = _single_keys() if keys else None
    with exit_on(signal.SIGTERM, signal.SIGHUP):
        try:
            bare(sys.stdout).write(ENTER)
            yield FullScreen(keys)
        finally:
            bare(sys.stdout).write(LEAVE)
            sys.stdout.flush()
            if before is not None:
                import termios

                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _single_keys() -> list[Any]:
    """Read single keys without echo; return the previous settings. Ctrl-Z, which would leave a
    broken screen, is off."""
    import termios

    before = termios.tcgetattr(sys.stdin)
    now = termios.tcgetattr(sys.stdin)
    now[3] &= ~(termios.ICANON | termios.ECHO)
    now[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, now)
    return before
