"""One run on one node: its script, its output on the way into node_<rank>.log, its end and its record.

The script comes to its shell through a named pipe and is complete but for its end, which starts the training; the loop's word
that the run begins brings that end. So the start of a shell, and the parsing of the environment, cost no time between two runs, and
no value is ever on a disk. What a run prints comes back through a second pipe. Both are this run's own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from shlex import quote
from typing import Any

from ..kernel.events import now_ms
from ..kernel.mllog_tail import MAX_LINE
from ..kernel.records import NodeRunRecord, write
from ..kernel.settings import Settings
from ..kernel.waiting import Failed, Waiting, read_piece
from .launch import Order, environment, host_entries, look_up_master, start
from .listening import RunOutput
from .node import Node
from .tuning import Answer, Tuning, drift

ENDED_BY_US, NO_CONTAINER = 143, 125
OUTPUT_S, KILL_S, CLEAR_S, DRIFT_S = 5, 10, 5, 10
TRANSPORT_S = 60
"""After RCCL's first line about the network all processes should have said what they use."""
_PIECE = 1 << 18
_SET_PIPE_SIZE = 1031  # fcntl.F_SETPIPE_SZ, which Python knows from 3.10 on


class Place:
    """Where runs happen: a shell that gets the name of a run and starts its script, in a container or on the host itself.

    `inside` is the node's channel as it is called there, `code` the folder of the training's code. What the shell says goes to
    `heard` as words: NAME started PID; NAME ended STATUS LEFT (1: something of the run still lives); NAME clear.
    This class is the place of a node that has none yet.
    """

    def __init__(self, inside: str = "", code: str = "") -> None:
        self.inside, self.code = inside, code
        self.heard: Callable[[list[str]], object] = len
        self.runs = 0
        """How many were prepared here."""

    def hear(self, line: str) -> None:
        self.heard(line.split())

    @property
    def gone(self) -> bool:
        """Whether nothing can run here any more."""
        return False

    def root(self) -> int:
        """Return the process of this host that all of its runs come from; 0 when that is not known."""
        return 0

    def command(self, argv: list[str], *, debugger: bool = False) -> list[str]:
        """Return what runs `argv` where the runs are; `debugger`: it looks into processes."""
        return argv

    def start(self, name: str) -> None:
        """Have the script of the run `name` begun."""

    def signal(self, word: str, pid: str) -> None:
        """Send TERM or KILL to the run whose first process is `pid`; KILL to all that is left of it."""

    def let_go(self) -> None:
        """Have it begin to end, where that takes time."""

    def close(self) -> None:
        """End it, with all that is left in it."""


class NodeRun:
    """One run from `prepare` to its record. `over`: all of it is said."""

    def __init__(
        self,
        node: Node,
        waiting: Waiting,
        tuning: Tuning,
        place: Place,
        order: Order,
        cache: dict[str, Any] | None = None,
    ) -> None:
        self.order = order
        self.over = False
        self._node, self._waiting, self._tuning, self._place = node, waiting, tuning, place
        self._name, self._rank = f"{order.run}.{order.attempt}", order.nodes.index(node.name)
        self._log_file = node.layout.node_log(order.run, order.attempt, self._rank)
        self._script = self._out = self._log = -1
        self._begun = self._stopped = self._withdrawn = False
        self._pid = ""
        self._code: int | None = None
        self._start_ms = self._end_ms = now_ms()
        self._late = self._left = self._clearing = self._broken = False
        self._drift: list[dict[str, Any]] | None = None
        self.output = RunOutput()
        self._told = False
        place.heard = self._heard
        place.runs += 1
        self._about = place.runs, cache or {}

    # ---- to its start

    def offer(self, exports: list[tuple[str, str | None]]) -> None:
        """Have the shell read the script up to its last line. Raises Failed."""
        try:
            self._log = os.open(
                self._log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
            )
            for kind in ("script", "out"):
                os.mkfifo(self._pipe(kind), 0o600)
            self._script = os.open(self._pipe("script"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._out = os.open(self._pipe("out"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.over = True
            self._close_files()
            raise Failed("storage", f"{os.fsdecode(error.filename)}: {error.strerror}") from error
        for fd in (self._script, self._out):
            with contextlib.suppress(OSError):  # this user may not have more
                fcntl.fcntl(fd, _SET_PIPE_SIZE, MAX_LINE)
        self._waiting.watch(self._out, self._take)
        self._write(self._lines(exports))
        self._place.start(self._name)

    def _pipe(self, kind: str) -> str:
        return f"{self._node.channel}/{kind}.{self._name}"

    def _lines(self, exports: list[tuple[str, str | None]]) -> str:
        """The environment of the config, what belongs to this run and node, and the way to the code."""
        order, place, settings = self.order, self._place, self._node.settings
        values = {**dict(exports), **environment(order, self._rank, settings, self._node.job_id)}
        values.update((name, os.environ[name]) for name in settings.pass_env if name in os.environ)
        lines = [
            f"exec >{quote(f'{place.inside}/out.{self._name}')} 2>&1 </dev/null",
            f". {quote(f'{place.inside}/environment.sh')}",
            *(f"unset {name}" if one is None else f"export {name}={quote(one)}" for name, one in values.items()),
            *((host_entries(order.hosts), look_up_master(order)) if place.inside == "/orch" else ()),
            f"cd {quote(place.code)} || exit 1",
        ]
        return "\n".join([*lines, ""])

    def _write(self, text: str) -> None:
        words = text.encode("utf-8", "surrogateescape")
        try:
            whole = os.write(self._script, words) == len(words)
        except BlockingIOError:
            whole = False
        if not whole:
            raise Failed("data", "the values of PASS_ENV are more than a pipe takes at once")

    def go(self) -> None:
        """Let it begin."""
        if self._code is None and not (self._begun or self._stopped or self._withdrawn):
            self._begun, self._start_ms, self.output = True, now_ms(), RunOutput()
            self._write(start(self.order, self._rank, self._node.settings))

    def withdraw(self) -> None:
        """It will not begin: nothing is recorded or said of it."""
        self._withdrawn = True
        self._dismiss()

    def stop(self, kill_s: float = KILL_S) -> None:
        """End it: TERM, and KILL after `kill_s`. What leaks from a run that has ended is not waited for any more."""
        if self._code is not None:
            self._is_late()
        elif not self._stopped:
            self._stopped = True
            if self._begun:
                self._signal("TERM")
            else:
                self._dismiss()
            self._waiting.after("kill", kill_s, lambda: self._signal("KILL"))

    def _dismiss(self) -> None:
        if self._script >= 0 and not self._begun:
            self._write(f"exit {ENDED_BY_US}\n")

    def _signal(self, word: str) -> None:
        if self._pid and not self.over:
            self._place.signal(word, self._pid)

    # ---- to its end

    def _heard(self, words: list[str]) -> None:
        if words[:1] != [self._name] or self.over:
            return
        if words[1:2] == ["started"] and len(words) == 3:
            self._pid = words[2]
            if self._stopped:
                self._signal("TERM")
        elif words[1:2] == ["ended"] and len(words) == 4 and words[2].isdigit():
            self.ended(int(words[2]), words[3] == "1")
        elif words[1:2] == ["clear"]:
            self._is_clear()

    def ended(self, code: int, left: bool = False) -> None:
        """Its first process has ended with `code`; `left`: something of it still lives."""
        if self._code is not None:
            return
        self._code, self._left, self._end_ms = code, left, now_ms()
        self._waiting.cancel("kill")
        if self._tuning.on and self._begun:
            self._waiting.after("drift", DRIFT_S, lambda: self._drifted(None))
            self._tuning.ask(self._drifted)
        else:
            self._drift = []
        self._waiting.after("output", 0 if self._stopped or self._withdrawn else OUTPUT_S, self._is_late)
        self._settle()

    def _drifted(self, knobs: Answer) -> None:
        if self._drift is None:
            self._drift = drift(knobs)
            self._settle()

    def _is_late(self) -> None:
        self._late = True
        self._settle()

    def _is_clear(self) -> None:
        self._left = False
        self._settle()

    def _settle(self) -> None:
        """Go on to the end as far as it is known."""
        if self.over or self._code is None or (self._out >= 0 and not self._late):
            return
        if self._left:
            if not self._clearing:
                self._clearing = True
                self._waiting.after("clear", CLEAR_S, self._is_clear)
                self._signal("KILL")
        elif self._drift is not None:
            self.close()

    def _take(self) -> bool:
        """Pass on what it printed; return whether there was something."""
        piece = read_piece(self._out, _PIECE)
        if piece:
            self._keep(piece)
            self.output.feed(piece)
            if self.output.speaks and not self._told:
                self._told = True
                self._waiting.after("transport", TRANSPORT_S, self._tell_transport)
        elif piece is not None:
            self._waiting.forget(self._out)
            os.close(self._out)
            self._out = -1
            self._settle()
        return bool(piece)

    def note(self, text: str) -> None:
        """Put a line of our own into its log."""
        self._keep(f"orchestrator: node {self._node.name}: {text}\n".encode())

    def _keep(self, piece: bytes) -> None:
        rest = memoryview(piece)
        try:
            while rest and not self._broken:
                rest = rest[os.write(self._log, rest) :]
        except OSError as error:
            # Whatever comes now, this log is not whole any more.
            self._broken = True
            why = os.strerror(error.errno or errno.EIO)
            raise Failed("storage", f"cannot write to {self._log_file}: {why}") from error

    def close(self) -> None:
        """Keep its files, write its record, say its end; by force when it has not ended."""
        if self.over:
            return
        self.over = True
        for name in ("kill", "drift", "output", "clear", "transport"):
            self._waiting.cancel(name)
        try:
            while self._out >= 0 and self._take():
                pass
        finally:
            self._close_files()
            if not self._withdrawn:
                self._tell()

    def _close_files(self) -> None:
        for fd in (self._script, self._out, self._log):
            if fd >= 0:
                self._waiting.forget(fd)
                os.close(fd)
        self._script = self._out = self._log = -1
        for kind in ("script", "out"):
            with contextlib.suppress(OSError):
                os.unlink(self._pipe(kind))

    def _tell(self) -> None:
        order, node = self.order, self._node
        self.output.finish()
        if self.output.speaks:
            self._tell_transport()
        keep_files(node, node.layout.node_files(order.run, order.attempt, node.name))
        code = ENDED_BY_US if self._stopped or self._code is None else self._code
        record = NodeRunRecord(
            node.name, self._rank, code, self._start_ms, self._end_ms, self._drift or [], *self._about
        )
        path = node.layout.node_state(order.run, order.attempt, self._rank)
        try:
            write(record, path, sync=False)
        except OSError as error:
            node.say("note", f"cannot write {path}: {error.strerror}")
        node.say("exit", order.id, code, self._start_ms, self._end_ms, "" if self._broken else self.output.status)

    def _tell_transport(self) -> None:
        self._node.say("transport", self.order.id, *self.output.transport())


def keep_files(node: Node, folder: os.PathLike[str]) -> None:
    """Move what a run left in /results to `folder`: the next run must not overwrite it."""
    try:
        found = set(os.listdir(node.results)) - _mounted(node.settings)
        if found:
            os.makedirs(folder, exist_ok=True)
        for name in found:
            _move(os.path.join(node.results, name), os.path.join(folder, name))
    except FileNotFoundError:
        return  # nothing ran here yet
    except OSError as error:
        node.log(f"could not keep {error.filename or 'the files of /results'}: {error.strerror}")


def _mounted(settings: Settings) -> set[str]:
    """Return the names in /results at which the container has something else: moved away, it would not have it any more."""
    places = [*settings.launch_shared, *(mount.split("\t")[1] for mount in settings.site_mounts)]
    return {one.split("/")[2] for one in places if one.startswith("/results/") and settings.engine != "none"}


def _move(source: str, target: str) -> None:
    """Move a file or folder, also to another file system. Raises OSError."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):
            raise
        import shutil

        try:
            shutil.move(source, target)
        except shutil.Error as failure:
            raise OSError(errno.EACCES, f"{failure}"[:200], source) from failure
