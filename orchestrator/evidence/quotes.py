"""Lines of a set's files, quoted as evidence."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.causes.reading import Symptom
from orchestrator.evidence.own_causes import is_bookkeeping
from orchestrator.evidence.progress import read_end
from orchestrator.evidence.training_log import training_log
from orchestrator.onnode.kernel.files import PathLike
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.log_ends import LogEnds, read_log_ends
from orchestrator.onnode.kernel.mllog_tail import lines
from orchestrator.onnode.kernel.records import RunRecord
from orchestrator.onnode.kernel.walk import FilesInside
from orchestrator.onnode.policy.reports import line

MOST_EVIDENCE = 6
_MOST_EPISODE, _MOST_TEXT = 2, 300
_LAST_BYTES = 4096


@dataclass(frozen=True)
class Proof:
    """A line of evidence. `line` counts from 1, below 0 from the end of the file (-1: the last), 0:
    no line."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}" if place else self.text


def shortened(text: str) -> str:
    """Return one line of at most 300 characters, ending in `...` if cut."""
    if len(text) <= _MOST_TEXT:
        return line(text, _MOST_TEXT)
    return f"{line(text, _MOST_TEXT - 4)} ..."


class Quotes:
    """Quotes a set's files, by names relative to its folder."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self._files = layout, FilesInside(layout.root)

    def named(self, path: PathLike) -> str:
        return line(os.path.relpath(path, self.layout.root), _MOST_TEXT)

    def in_file(self, path: Path, text: str) -> Proof:
        """Return the line of a small file with `text`."""
        ends = read_log_ends(path, self._files)
        key = text.encode("utf-8", "replace")[:80]
        offset = ends.text.find(key) if ends and key else -1
        number = ends.line(offset) if ends and offset >= 0 else 0
        return Proof(self.named(path), number, shortened(text))

    def record(self, path: Path, text: str) -> Proof:
        return Proof(self.named(path), 0, shortened(text))

    # ---- a log

    def of_cause(
        self,
        first: tuple[str, Symptom],
        logs: Mapping[str, LogEnds],
        by_node: Mapping[str, Sequence[Symptom]],
        error: Path | None,
    ) -> list[Proof]:
        """Return the line of the first cause, and equivalent lines: the log's first by another
        speaker (a library and then the exception, or the reverse), and those of other nodes.

        `error`: the file in which that node's processes reported their exception.
        """
        node, symptom = first
        if node not in logs:
            return [Proof("", 0, f"{node}: {symptom.text}")]
        log = logs[node]
        if symptom.offset < 0 and symptom.raised and error is not None:
            return [Proof(self.named(error), 0, symptom.text)]
        proofs = self.episode(log, symptom)
        places = {symptom.offset, *(offset for _, offset in symptom.episode)}
        again = (
            there
            for there in by_node.get(node, ())
            if symptom.cause and there.cause == symptom.cause and there.raised != symptom.raised
        )
        proofs += [self.symptom(log, there) for there in again if there.offset not in places][:1]
        for other, symptoms_there in by_node.items():
            same = (there for there in symptoms_there if there.cause == symptom.cause)
            if other != node and (equivalent := next(same, None)):
                proofs.append(self.symptom(logs[other], equivalent))
        return proofs[: MOST_EVIDENCE - 1]

    def episode(self, log: LogEnds, symptom: Symptom) -> list[Proof]:
        """Return a symptom's line, and the first others of its episode."""
        return [
            self.symptom(log, symptom),
            *(
                Proof(self.named(log.path), log.line(offset), text)
                for text, offset in symptom.episode[:_MOST_EPISODE]
            ),
        ]

    def symptom(self, log: LogEnds, symptom: Symptom) -> Proof:
        number = log.line(symptom.offset) if symptom.offset >= 0 else 0
        return Proof(self.named(log.path), number, symptom.text)

    def context(self, log: LogEnds, offset: int) -> list[Proof]:
        """Return the lines around a line: up to two before it and the next."""
        previous = log.text.rfind(b"\n", 0, max(0, offset - 1))
        start = log.text.rfind(b"\n", 0, max(0, previous)) + 1
        end = log.text.find(b"\n", offset)
        after = log.text[end + 1 :].partition(b"\n")[0] if end >= 0 else b""
        return [
            *self._lines(log, start, log.text[start:offset]),
            *self._lines(log, end + 1, after),
        ]

    def last_lines(self, log: LogEnds) -> list[Proof]:
        end = log.text[-_LAST_BYTES:]
        if len(end) < len(log.text):  # it may start inside a line, such as an MLLOG record
            end = end.partition(b"\n")[2]
        return self._lines(log, len(log.text) - len(end), end)[-3:]

    def _lines(self, log: LogEnds, offset: int, text: bytes) -> list[Proof]:
        proofs = []
        for raw in text.split(b"\n"):
            shown = shortened(raw[: 2 * _MOST_TEXT].decode("utf-8", "replace"))
            if shown.strip() and not (is_bookkeeping(shown) or ":::MLLOG" in shown):
                proofs.append(Proof(self.named(log.path), log.line(offset), shown))
            offset += len(raw) + 1
        return proofs

    def last_key(self, attempt: RunRecord | None) -> list[Proof]:
        """Return the last MLLOG key of an attempt."""
        if attempt is None:
            return []
        log = training_log(self.layout, attempt.run, attempt.attempt)
        records = list(lines(read_end(log, self._files)))
        key = str(records[-1]["key"])[:60] if records else ""
        key = key if key.isprintable() else ascii(key)
        return [Proof(self.named(log), 0, f"the last MLLOG key is {key}")] if key else []
