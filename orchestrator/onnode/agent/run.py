"""A run on a node: script, log, end, record.

Its shell reads the script from a pipe. The last line, which starts the training, comes with the
loop's go, so shell and environment cost no time between two runs.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..kernel.events import Pulse, number
from ..kernel.plural import count
from ..kernel.records import NodeRunRecord, write
from ..kernel.system import lines
from ..kernel.waiting import Failed, Waiting
from ..kernel.world import now_ms
from .executor import Executor, RunPipes
from .inside import ContentObserver, Contents, Inside
from .launch import RunRequest, preamble, start
from .node import OUTBOX, Node, keep_from_others, shortened
from .observers import (
    DriftObserver,
    Observer,
    OutputObserver,
    StartObserver,
    TransportObserver,
)
from .tuning import Tuning

ENDED_BY_US, NO_CONTAINER = 143, 125
"""Exit codes of a stopped run, and of a run whose container (or reaper) ended."""
OUTPUT_S, KILL_S, CLEAR_S = 5, 10, 5


class NodeRun:
    """A run from `prepare` to its record. `over`: only `files` remain."""

    def __init__(
        self,
        node: Node,
        waiting: Waiting,
        tuning: Tuning,
        executor: Executor,
        request: RunRequest,
        inside: Inside,
        cache: dict[str, Any] | None = None,
    ) -> None:
        self.request = request
        self._node, self._waiting, self._executor = node, waiting, executor
        layout, number = node.layout, (request.run, request.attempt)
        self.files = RunFiles(node, waiting, layout.node_files(*number, node.name))
        log_file = layout.node_log(*number, self._rank)
        self._pipes = RunPipes(node.channel, self._name, log_file)
        self._output = OutputObserver()
        container_run = executor.expect(self._heard)
        self._observers: tuple[Observer, ...] = (
            self._output,
            TransportObserver(node, waiting, request.id, self._output),
            DriftObserver(waiting, tuning, self._settle),
            StartObserver(container_run, cache or {}),
            ContentObserver(inside, self._ended_by_itself, self._tell_contents, self._settle),
        )
        self._word = "offered"
        """offered, begun, withdrawn"""
        self._is_stopped = self._is_late = False
        self._rest = ""
        """After its end: left (a process lives), clearing (being killed), "", over."""
        self._pid = ""
        self._code: int | None = None
        self._span = now_ms(), now_ms()

    @property
    def _name(self) -> str:
        return f"{self.request.run}.{self.request.attempt}"

    @property
    def _rank(self) -> int:
        return self.request.nodes.index(self._node.name)

    @property
    def over(self) -> bool:
        return self._rest == "over"

    def pulse(self) -> Pulse:
        return self._output.pulse()

    # ---- to its start

    def offer(self, exports: list[tuple[str, str | None]]) -> None:
        """Let the shell read the script up to its last line. Raises Failed."""
        try:
            self._pipes.open()
        except Failed:
            self._rest = "over"
            raise
        self._waiting.watch(self._pipes.out, self._take)
        head = preamble(self._node, self.request, self._rank, self._executor, exports)
        self._pipes.write(head)
        self._executor.start(self._name)

    def go(self) -> None:
        if self._code is not None or self._is_stopped or self._word != "offered":
            return
        self._word = "begun"
        self._span = now_ms(), self._span[1]
        for observer in self._observers:
            observer.begin()
        self._pipes.write(start(self.request, self._rank, self._node.settings))

    def withdraw(self) -> None:
        """Cancel the start; nothing is recorded."""
        self._dismiss()
        self._word = "withdrawn"

    def stop(self, kill_s: float = KILL_S) -> None:
        """End it: TERM, and KILL after `kill_s`; await no remains of an ended run."""
        if self._code is not None:
            self._end_output()
        elif not self._is_stopped:
            self._is_stopped = True
            if self._word == "begun":
                self._signal("TERM")
            else:
                self._dismiss()
            self._waiting.after("kill", kill_s, lambda: self._signal("KILL"))

    def _dismiss(self) -> None:
        if self._pipes.has_script and self._word == "offered":
            self._pipes.write(f"exit {ENDED_BY_US}\n")

    def _signal(self, word: str) -> None:
        if self._pid and not self.over:
            self._executor.signal(word, self._pid)

    # ---- to its end

    def _heard(self, fields: list[str]) -> None:
        """Take the shell's messages; see Executor."""
        if fields[:1] != [self._name] or self.over:
            return
        if fields[1:2] == ["started"] and len(fields) == 3:
            self._pid = fields[2]
            if self._is_stopped:
                self._signal("TERM")
        elif fields[1:2] == ["ended"] and len(fields) == 4 and fields[2].isdigit():
            self.ended(int(fields[2]), left=fields[3] == "1")
        elif fields[1:2] == ["clear"]:
            self._clear()

    def ended(self, code: int, *, left: bool = False) -> None:
        """The first process has ended; `left`: another still lives."""
        if self._code is not None or self.over:
            return
        self._code, self._rest = code, "left" if left else ""
        self._span = self._span[0], now_ms()
        self._waiting.cancel("kill")
        for observer in self._observers:
            observer.run_ended()
        is_cut = self._is_stopped or self._word == "withdrawn"
        self._waiting.after("output", 0 if is_cut else OUTPUT_S, self._end_output)
        self._settle()

    def _ended_by_itself(self) -> bool:
        was_ended = self._is_stopped or self._word != "begun" or self._code == NO_CONTAINER
        return not (was_ended or self._executor.gone)

    def _tell_contents(self, contents: Contents) -> None:
        parts = (f"{part}={sha}" for part, sha in contents.items())
        self._node.say("inside", self.request.id, *parts)

    def _end_output(self) -> None:
        self._is_late = True
        self._settle()

    def _clear(self) -> None:
        self._rest = ""
        self._settle()

    def _settle(self) -> None:
        if self.over or self._code is None:
            return
        if self._pipes.out >= 0 and not self._is_late:
            return
        if self._rest == "left":
            self._rest = "clearing"
            self._waiting.after("clear", CLEAR_S, self._clear)
            self._signal("KILL")
        elif not self._rest and all(observer.is_done for observer in self._observers):
            self.close()

    def _take(self) -> bool:
        piece = self._pipes.read()
        if piece:
            self._pipes.keep(piece)
            for observer in self._observers:
                observer.feed(piece)
        elif piece is not None:
            self._waiting.forget(self._pipes.out)
            self._pipes.end_output()
            self._settle()
        return bool(piece)

    def note(self, text: str) -> None:
        """Write the agent's line into its log."""
        self._pipes.keep(f"orchestrator: node {self._node.name}: {text}\n".encode())

    def close(self) -> None:
        """Keep its files, write its record, report its end; or leave that to `files`."""
        if self.over:
            return
        self._rest = "over"
        for name in ("kill", "output", "clear"):
            self._waiting.cancel(name)
        try:
            while self._pipes.out >= 0 and self._take():
                pass
        finally:
            if self._pipes.out >= 0:
                self._waiting.forget(self._pipes.out)
            self._pipes.close()
            if self._word != "withdrawn":
                with OUTBOX.at_once():
                    self._tell()

    def _tell(self) -> None:
        about: dict[str, Any] = {}
        for observer in self._observers:
            about |= observer.end()
        self.files.keep(partial(self._report, about))

    def _report(self, about: dict[str, Any]) -> None:
        request, node = self.request, self._node
        code = ENDED_BY_US if self._is_stopped or self._code is None else self._code
        start_ms, end_ms = self._span
        record = NodeRunRecord(node.name, self._rank, code, start_ms, end_ms, **about)
        path = node.layout.node_state(request.run, request.attempt, self._rank)
        try:
            write(record, path, sync=False)
        except OSError as error:
            node.say("note", f"cannot write {path}: {error.strerror}")
        status = "" if self._pipes.is_broken else self._output.output.status
        node.say("exit", request.id, code, start_ms, end_ms, status)


# ---- caches ----


def drop_caches(node: Node, waiting: Waiting) -> tuple[int, int]:
    """Drop page cache, dentries and inodes; return droppable KiB before and after. Raises
    Failed."""
    before, file = _droppable(node), f"{node.hardware_proc}/sys/vm/drop_caches"
    argv = [
        *node.settings.sudo,
        "bash",
        "-c",
        'sync && echo 3 >"$1"',
        "orchestrator",
        file,
    ]
    with node.open_log() as errors:
        if waiting.call(argv, errors=errors)[0]:
            raise Failed("caches", f"cannot drop caches: {node.last_words()}")
    return before, _droppable(node)


def _droppable(node: Node) -> int:
    """KiB of page cache without shared memory, and of the kernel's caches."""
    rows = (line.split() for line in lines(f"{node.hardware_proc}/meminfo", 1 << 14))
    amounts = {row[0]: number(row[1]) or 0 for row in rows if len(row) > 1}
    signs = {"Buffers:": 1, "Cached:": 1, "SReclaimable:": 1, "Shmem:": -1}
    return sum(sign * amounts.get(name, 0) for name, sign in signs.items())


# ---- its files in /results ----


class RunFiles:
    """Moves a run's files in /results to `folder`."""

    def __init__(self, node: Node, waiting: Waiting, folder: Path) -> None:
        self._node, self._waiting, self._folder = node, waiting, folder
        self._has_copies = False
        self._report: Callable[[], object] | None = None

    def keep(self, report: Callable[[], object]) -> None:
        """Move them and `report`. Leave both to `finish` for another file system."""
        names = _files(self._node)
        self._has_copies = bool(names and _keep(self._node, names, self._folder, _move))
        if self._has_copies:
            self._report = report
        else:
            report()

    def finish(self) -> None:
        """A release reports before it copies. Raises ReleaseRequested."""
        try:
            if not self._waiting.releasing:
                self.copy()
        finally:
            report, self._report = self._report, None
            if report is not None:
                report()

    def copy(self) -> None:
        """Raises ReleaseRequested."""
        if self._has_copies:
            _keep(self._node, _files(self._node), self._folder, partial(_copy, self._waiting))
            self._has_copies = False


def keep_unclaimed(node: Node, waiting: Waiting, name: str) -> None:
    """Move files in /results to a new folder of the node."""
    if names := _files(node):
        folder, taken = node.folder / name, 1
        while os.path.lexists(folder):
            taken += 1
            folder = node.folder / f"{name}-{taken}"
        folder = folder / "files" / node.name
        if names := _keep(node, names, folder, _move):
            _keep(node, names, folder, partial(_copy, waiting))


def _files(node: Node) -> list[str]:
    try:
        return sorted(set(os.listdir(node.results)) - node.mounted)
    except FileNotFoundError:  # nothing ran here yet
        return []
    except OSError as error:
        node.log(f"could not keep the files of {node.results}: {error.strerror}")
        return []


def _keep(
    node: Node, names: list[str], folder: os.PathLike[str], keep: Callable[[str, str], bool]
) -> list[str]:
    """Return the names that `keep` could not."""
    failed, rest = list[OSError](), list[str]()
    try:
        node.make_in_set(folder)
        if node.settings.engine != "none":
            keep_from_others(os.fspath(folder))
    except OSError as error:
        failed, names = [error], []
    for name in names:
        try:
            if not keep(os.path.join(node.results, name), os.path.join(folder, name)):
                rest.append(name)
        except OSError as error:
            failed.append(error)
    if failed:
        first = failed[0]
        others = f", and {count(len(failed) - 1, 'other')}" if len(failed) > 1 else ""
        node.log(f"could not keep {first.filename or node.results}: {first.strerror}{others}")
    return rest


def _move(source: str, target: str) -> bool:
    """Return False for another file system. Raises OSError."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):
            raise
        return False
    return True


def _copy(waiting: Waiting, source: str, target: str) -> bool:
    """Move; a copy is `.incomplete` until its end. Raises OSError, ReleaseRequested."""
    copy = f"{target}.incomplete"
    script = 'rm -rf -- "$2" && exec cp -RPp -- "$1" "$2"'
    _call(waiting, ["sh", "-c", script, "copy", source, copy], source)
    os.rename(copy, target)
    _call(waiting, ["rm", "-rf", "--", source], source)
    return True


def _call(waiting: Waiting, argv: list[str], path: str) -> None:
    status, output = waiting.call(argv, errors=subprocess.STDOUT)
    if status:
        text = output.decode("utf-8", "replace").partition("\n")[0]
        raise OSError(errno.EIO, shortened(text, 200), path)
