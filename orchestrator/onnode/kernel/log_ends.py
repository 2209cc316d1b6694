"""The two ends of a log as one text, with line numbers of the file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .files import HERE, PathLike, raise_if_away

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from .walk import WalkedFiles

HEAD_BYTES, TAIL_BYTES = 64 << 10, 256 << 10
COUNT_BYTES = 64 << 20
"""Further into a file, lines are counted from its end."""


@dataclass(frozen=True)
class LogEnds:
    """`cut`: offset of the second end in the text; `start`: its offset in the file."""

    path: PathLike
    text: bytes
    cut: int
    start: int
    files: WalkedFiles = HERE

    def line(self, offset: int) -> int:
        """Return the line number at `offset` of the text; below 0: from the file's end (-1: the
        last); 0: unreadable now."""
        if offset < self.cut or self.start == self.cut:
            return self.text.count(b"\n", 0, offset) + 1
        at = self.start + offset - self.cut
        if at > COUNT_BYTES:
            return -(self.text.count(b"\n", offset) + (not self.text.endswith(b"\n")))
        try:
            with self.files.open(self.path) as file:
                return file.read(at).count(b"\n") + 1
        except OSError:
            return 0


def read_log_ends(
    path: PathLike, files: WalkedFiles = HERE, *, strict: bool = False
) -> LogEnds | None:
    """Read both ends, whole lines; None if unreadable. `strict`: as in records.read."""
    try:
        with files.open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= HEAD_BYTES + TAIL_BYTES:
                text = file.read(size)
                return LogEnds(path, text, len(text), len(text), files)
            head = file.read(HEAD_BYTES)
            head = head[: head.rfind(b"\n") + 1]
            file.seek(size - TAIL_BYTES)
            tail = file.read(TAIL_BYTES)
    except OSError as error:
        if strict:
            raise_if_away(path, error)
        return None
    begin = tail.find(b"\n") + 1
    return LogEnds(path, head + tail[begin:], len(head), size - TAIL_BYTES + begin, files)
