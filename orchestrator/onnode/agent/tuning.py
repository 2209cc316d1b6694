"""The settings of the host, before and after a run. Rules and files: docs/tuning.md.

What a knob is and whether it holds is decided in one place, the bundle's runtime_tunables.sh; its verb `watch` answers for as long
as this node is held, so that a look costs no process.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Optional

from .node import Node, shortened
from .waiting import Failed, Waiting

ANSWER_S = 60
_HEADER = b"knob\twanted\tbefore\tafter\tresult\tneed\taction\ttime_ms\ttarget\n"
_PIECE_BYTES = 700


@dataclass(frozen=True)
class Knob:
    """One setting as it was found. `mode`: set or look; `need`: required or optional; `word`: holds, fails or unsupported."""

    name: str
    found: str
    wanted: str
    need: str
    mode: str
    word: str

    @property
    def words(self) -> str:
        return f"{self.name} wanted {self.wanted}, found {self.found}"


Answer = Optional[list[Knob]]


def missing(knobs: list[Knob]) -> str:
    """Return which required knobs do not hold, "" when all do."""
    return "; ".join(one.words for one in knobs if one.word == "fails" and one.need == "required")


def drift(knobs: list[Knob]) -> list[dict[str, Any]]:
    """Return the knobs that were set and do not hold, as a node's record of a run has them."""
    return [
        {"knob": one.name, "wanted": one.wanted, "found": one.found, "need": one.need}
        for one in knobs
        if one.word == "fails" and one.mode == "set"
    ]


def last_words(node: Node, lines: int = 1) -> str:
    """Return the last lines of this node's hold.log as one."""
    try:
        with open(node.hold_log, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 4096, 0))
            return " ".join(file.read().decode("utf-8", "replace").split("\n")[-1 - lines :]).strip()
    except OSError:
        return ""


def hold_log(node: Node) -> IO[bytes]:
    """Return this node's hold.log, open to append to; what cannot be kept there is lost."""
    try:
        return open(node.hold_log, "ab")
    except OSError:
        return open(os.devnull, "ab")


class Tuning:
    """The knobs of one node while it is held."""

    def __init__(self, node: Node, waiting: Waiting) -> None:
        self._node, self._waiting = node, waiting
        self.on = node.settings.runtime_tunables == 1
        self._script = str(node.bundle / "runtime_tunables.sh")
        self._roots = {"ORCH_TUNABLES_ROOT": node.root}
        if state := os.environ.get("ORCH_TUNABLES_STATE", ""):
            self._roots["ORCH_TUNABLES_STATE"] = state.replace("%n", node.name)
        self._watcher: subprocess.Popen[bytes] | None = None
        self._heard: list[Knob] = []
        self._asked: deque[Callable[[Answer], None]] = deque()
        self._boot: list[Knob] = []
        self._knobs: list[Knob] = []
        self._told: list[str] = []

    # ---- setting and putting back

    def apply(self) -> str:
        """Set the knobs; return what is worth a note. Raises Failed when a required one does not hold."""
        problem, note = self._change("apply")
        if problem:
            raise Failed("tunables", f"tunables: {problem}")
        return note

    def revert(self) -> str:
        """Put back what was there; return what could not be."""
        return self._change("revert")[0]

    def _change(self, action: str) -> tuple[str, str]:
        if not self.on:
            return "", ""
        seconds, end = 0, os.environ.get("SLURM_JOB_END_TIME", "")
        if end.isascii() and end.isdigit():
            # The job's own end bounds the time that the settings can stay, whatever becomes of this process.
            seconds = max(int(end) - int(time.time()), 0) + 120
        owner = {
            "ORCH_OWNER_PID": os.getpid(),
            "ORCH_OWNER_S": seconds,
            "ORCH_LEASE_S": self._node.settings.orch_lease_s,
            **self._roots,
        }
        words = [f"{name}={value}" for name, value in owner.items()]
        argv = [*self._node.settings.sudo, "env", *words, "bash", self._script, action, self._node.owner]
        with hold_log(self._node) as errors:
            status, rows = self._waiting.call(argv, patient=True, errors=errors)
        self._keep(rows)
        problems: list[str] = []
        notes: list[str] = []
        if status >= 2:
            problems.append(last_words(self._node) or rows.decode("utf-8", "replace") or f"it ended with {status}")
        for row in rows.decode("utf-8", "replace").splitlines():
            name, wanted, _, after, word, need = (*row.split("\t"), *[""] * 6)[:6]
            text = f"{name} wanted {wanted}, found {after}"
            if word == "failed":
                (problems if action == "revert" or need == "required" else notes).append(text)
            elif action == "apply" and word == "unsupported" and need == "required":
                notes.append(f"{name} unsupported on this host")
        return "; ".join(problems), shortened("; ".join(notes), 800)

    def _keep(self, rows: bytes) -> None:
        try:
            with open(self._node.folder / "tunables.tsv", "ab") as file:
                file.write((b"" if file.tell() else _HEADER) + rows)
        except OSError as error:
            self._node.log(f"cannot write {self._node.folder}/tunables.tsv: {error.strerror}")

    # ---- looking

    def look_at_boot(self) -> None:
        """Have somebody look at the knobs, and note what only a boot changes; once is enough."""
        if not self.on or self._watcher is not None:
            return
        with hold_log(self._node) as errors:
            self._watcher = subprocess.Popen(
                ["bash", self._script, "watch"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, **self._roots},
            )
        assert self._watcher.stdout is not None
        boot = self._soon()
        self._waiting.watch_lines(self._watcher.stdout.fileno(), self._hear, self._nobody_looks)
        self._waiting.wait(lambda: boot, ANSWER_S)
        self._boot = (boot[0] if boot else None) or []

    def look(self) -> Answer:
        """Return the knobs as they are now; None when they cannot be looked at. Everything else is served meanwhile."""
        self.look_at_boot()
        found: list[Answer] = []
        self.ask(found.append)
        self._waiting.wait(lambda: found, ANSWER_S)
        answer = found[0] if found else None
        self._knobs = answer or self._knobs
        return answer

    def ask(self, then: Callable[[Answer], None]) -> None:
        """Have `then` called with the knobs as they are now; with None when nobody looks at them any more."""
        assert self._watcher is not None and self._watcher.stdin is not None
        try:
            self._watcher.stdin.write(b"\n")
        except (OSError, ValueError):
            then(None)
        else:
            self._asked.append(then)

    def _soon(self) -> list[Answer]:
        """The next answer will be in this list."""
        found: list[Answer] = []
        self._asked.append(found.append)
        return found

    def _hear(self, line: str) -> None:
        cells = line.split("\t")
        if len(cells) == 6:
            self._heard.append(Knob(*cells))
        elif not line and self._asked:
            heard, self._heard = self._heard, []
            self._asked.popleft()(heard)

    def _nobody_looks(self) -> None:
        assert self._watcher is not None and self._watcher.stdin is not None
        self._watcher.stdin.close()
        while self._asked:
            self._asked.popleft()(None)

    # ---- facts

    def tell_facts(self, image: str) -> None:
        """Say what can move time or convergence, when it has changed; in pieces, for srun keeps no long line whole."""
        from .facts import collect

        knobs = {one.name: one.found for one in (*self._knobs, *self._boot)}
        facts = collect(self._node, image, knobs)
        if facts == self._told:
            return
        self._told = facts
        piece: list[str] = []
        word, size = "facts", 0
        for one in facts:
            one = shortened(one, 600)
            length = len(one.encode("utf-8", "replace")) + 1
            if size + length > _PIECE_BYTES:
                self._node.say(word, *piece)
                word, piece, size = "facts+", [], 0
            piece.append(one)
            size += length
        self._node.say(word, *piece)

    # ---- caches

    def drop_caches(self) -> tuple[int, int]:
        """Drop page cache, dentries and inodes. Return KiB that this can free, before and after. Raises Failed("caches", why)."""
        before, file = self._droppable(), f"{self._node.root}/proc/sys/vm/drop_caches"
        if self._node.settings.sudo:
            argv = [*self._node.settings.sudo, "bash", "-c", 'sync && echo 3 >"$1"', "_", file]
            with hold_log(self._node) as errors:
                if self._waiting.call(argv, errors=errors)[0]:
                    raise Failed("caches", f"cannot drop its caches: {last_words(self._node)}")
        else:
            try:
                os.sync()
                with open(file, "w") as caches:
                    caches.write("3\n")
            except OSError as error:
                raise Failed("caches", f"cannot drop its caches: {file}: {error.strerror}") from error
        return before, self._droppable()

    def _droppable(self) -> int:
        """KiB of the page cache without shared memory, and of the kernel's own caches."""
        total = 0
        try:
            with open(f"{self._node.root}/proc/meminfo", "rb") as file:
                lines = file.read(1 << 14).decode("utf-8", "replace").splitlines()[:40]
        except OSError:
            lines = []
        for line in lines:
            name, _, rest = line.partition(":")
            kib = int("".join(one for one in rest if one in "0123456789")[:15] or 0)
            total += {"Buffers": kib, "Cached": kib, "SReclaimable": kib, "Shmem": -kib}.get(name, 0)
        return total
