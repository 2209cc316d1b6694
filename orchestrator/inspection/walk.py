"""Walk a script line by line, as bash would run it, with the values known before a run.

Both branches of undecided conditions are walked; differences after them are unknown. Nothing is
executed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.inspection import conditions, programs
from orchestrator.inspection.commands import COMMANDS
from orchestrator.inspection.flow import Break, Cause, Continue, Exit, Flow, Return
from orchestrator.inspection.interface import Answer
from orchestrator.inspection.run_container import RunContainer
from orchestrator.inspection.state import Frame, ShellState
from orchestrator.inspection.statements import STATEMENTS
from orchestrator.inspection.streams import NOWHERE
from orchestrator.inspection.syntax import first_error, line_of, parse, text_of
from orchestrator.inspection.trace import (
    UNKNOWN,
    Missing,
    PathHow,
    PathUse,
    Place,
    Start,
    Trace,
    Undecided,
    is_known,
)
from orchestrator.inspection.tree import ImageTree
from orchestrator.inspection.variables import Variables

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_STEPS = 60_000
MOST_DEPTH = 25
"""Of functions and scripts that start each other."""
TOO_DEEP = "it is nested too deeply to be walked"
LIBRARY_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HANDLERS = {**STATEMENTS, **COMMANDS}
SEQUENCES = {"program", "do_group", "ERROR"}


class ScriptWalk:
    """`statuses`: known exit statuses of programs (file and line of the start)."""

    FAILED = 7

    def __init__(
        self,
        tree: ImageTree,
        around: RunContainer,
        statuses: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self.tree = tree.overlay()
        self.around = around
        self.statuses = dict(statuses or {})
        self.trace = Trace()
        self.in_test = False
        self._maybe = 0
        self._guarded = 0
        self._steps = MOST_STEPS
        self._depth = 0
        self._line = 0
        self._made: set[str] = set()
        self._executable: set[str] = set()

    def run(self, argv: list[str]) -> int | None:
        """Return the command's exit status, None if undecided."""
        shell = self._shell("bash")
        origin = Place("the bundle's command", 1)
        try:
            return programs.run(self, shell, argv, origin)
        except Exit as end:
            return end.status
        except RecursionError:
            self.trace.undecided.append(Undecided(TOO_DEEP, origin))
            return None

    def run_python_commands(self, begin: int) -> None:
        """Walk the programs that Python starts, from number `begin` on. Statuses are not followed:
        a missing program may be no failure."""
        known = len(self.trace.missing)
        for command in self.trace.commands[begin:]:
            shell = self._shell(command.place.file, command.place.file)
            self._maybe += command.place.maybe
            try:
                with self.at_line(command.place.line), self.guard():
                    if isinstance(command.program, str):
                        self.statements(parse(command.program), shell)
                    else:
                        programs.run(self, shell, list(command.program), command.place)
            except Flow:
                pass
            except RecursionError:
                self.trace.undecided.append(Undecided(TOO_DEEP, command.place))
            finally:
                self._maybe -= command.place.maybe
        for at, missing in enumerate(self.trace.missing[known:], known):
            start = missing.start
            start = start._replace(place=start.place._replace(maybe=True))
            self.trace.missing[at] = missing._replace(start=start)

    def _shell(self, script: str, source: str = "") -> ShellState:
        path = self.tree.config.environment.get("PATH") or LIBRARY_PATH
        variables = {"PATH": path, **self.tree.config.environment, **self.around.environment}
        known = Variables(dict(variables), set(variables))
        return ShellState(Frame(script, source), self.around.cwd, known)

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Reads in here belong to a condition."""
        before, self.in_test = self.in_test, True
        try:
            yield
        finally:
            self.in_test = before

    def place(self, node: Node, shell: ShellState) -> Place:
        return Place(shell.frame.source, self._line or line_of(node), self._maybe > 0)

    @contextmanager
    def at_line(self, line: int) -> Iterator[None]:
        """Evaluated text has the place of its `eval`."""
        before, self._line = self._line, self._line or line
        try:
            yield
        finally:
            self._line = before

    def capture(self, node: Node, shell: ShellState) -> str:
        if (text := text_of(node)).startswith("$(("):  # the grammar takes `$((1*2))` in quotes so
            return str(conditions.plain_number(text[3:-2]) or UNKNOWN)
        inner = shell.copy()
        output = inner.streams.capture()
        with self.guard():
            try:
                self.statements(node, inner)
            except (Exit, Return) as end:
                inner.finish(end.status)
            except Flow:
                pass
        shell.finish(inner.status)
        return "".join(output).rstrip("\n")

    def arithmetic(self, node: Node, shell: ShellState) -> int | None:
        return conditions.arithmetic(self, shell, node)

    def path_test(self, operator: str, path: str, node: Node, shell: ShellState) -> Answer:
        full = self.absolute(shell, path)
        self.use_path("tested", full, self.place(node, shell))
        if operator in ("-r", "-w", "-x", "-s"):
            return None
        return self.has(full, folder=operator == "-d")

    def absolute(self, shell: ShellState, path: str) -> str:
        joined_path = posixpath.join(shell.cwd, path)
        if is_known(joined_path):
            return posixpath.normpath(joined_path)
        return joined_path.replace("/./", "/")

    def has(self, path: str, *, folder: bool = False) -> Answer:
        if not is_known(path):
            return None
        if path in self._made:
            return True
        mount = self.around.mount_of(path)
        if mount is not None:
            if path.rstrip("/") == mount.place.rstrip("/"):
                return True
            promised = mount.holds or ()
            return (
                True
                if any((place + "/").startswith(path.rstrip("/") + "/") for place in promised)
                else None
            )
        if path.startswith(("/proc", "/sys", "/dev", "/tmp", "/run")):
            return None
        there = self.tree.is_folder(path) if folder else self.tree.exists(path)
        return True if there else (False if self.tree.complete else None)

    def use_path(self, how: PathHow, path: str, place: Place) -> None:
        if path.startswith("/") and path != NOWHERE:
            self.trace.paths.append(PathUse(path, how, place))

    def make(self, path: str, text: str | None = None) -> None:
        """Note that a script made `path`."""
        if not is_known(path):
            return
        self._made.add(path)
        if text is not None and not path.startswith("/dev/"):
            self.tree.write(path, text)

    def keep_output(self, shell: ShellState) -> None:
        """Note the text of the file behind standard output."""
        streams = shell.streams
        if streams.captured is not None and streams.out.startswith("/"):
            self.make(streams.out, "".join(streams.captured))

    def allow(self, *paths: str) -> None:
        self._executable.update(map(self.tree.resolve, filter(is_known, paths)))

    def may_execute(self, path: str) -> bool:
        file = self.tree.get(path)
        if file is None or file.kind != "file" or self.around.mount_of(path) is not None:
            return True
        return file.is_executable or self.tree.resolve(path) in self._executable

    def source(self, path: str, shell: ShellState, how: str) -> None:
        """Walk a file in `shell`. Its own `exit` ends the shell."""
        place = self.tree.resolve(path)
        body = self.tree.text(place)
        if body is None:
            return
        self.trace.scripts.setdefault(place, how)
        root = parse(body)
        if "\r\n" in body:
            where = Place(place, 1, self._maybe > 0)
            start = Start((place,), where, shell.streams.out, shell.streams.err)
            fault = "has lines that end with CR LF: bash takes the CR for a part of their last word"
            self.trace.missing.append(Missing(place, start, fault))
        error = first_error(root)
        if error is not None:
            where = Place(place, line_of(error), self._maybe > 0)
            self.trace.undecided.append(Undecided("a line that cannot be parsed", where))
        with shell.frame.sourcing(path), self.nested() as fits:
            if fits:
                self.statements(root, shell)

    @contextmanager
    def nested(self) -> Iterator[bool]:
        """Enter a file or function; yield whether the depth allows it."""
        line, self._line = self._line, 0
        self._depth += 1
        if self._depth > MOST_DEPTH:
            here = Place("the scripts of the command", 1, self._maybe > 0)
            self.trace.undecided.append(Undecided("they start each other without an end", here))
        try:
            yield self._depth <= MOST_DEPTH
        finally:
            self._depth -= 1
            self._line = line

    def script(self, path: str, arguments: list[str], shell: ShellState, how: str) -> int | None:
        child = shell.child(path, arguments)
        with self.guard(0):
            return self.process(child, lambda: self.source(path, child, how))

    def process(self, shell: ShellState, body: Callable[[], None]) -> int | None:
        """Walk a shell to its end; return its exit status."""
        text = shell.streams.captured
        try:
            body()
        except (Exit, Return) as end:
            shell.finish(end.status)
        except Flow:
            pass
        status = self._trapped(shell, "EXIT")
        if shell.streams.captured is not text:
            self.keep_output(shell)
        return status

    def _trapped(self, shell: ShellState, event: str) -> int | None:
        """Walk the trap of an event; return the shell's status. Raises Exit if a trap of ERR ends
        the shell."""
        status = shell.status
        text, line = shell.traps.pop(event, ("", 0))
        if not text:
            return status
        try:
            with self.at_line(line), self.guard():
                self.statements(parse(text), shell)
        except Exit as end:
            if event == "ERR":
                raise
            return end.status
        except Flow:
            pass
        shell.traps.setdefault(event, (text, line))
        shell.finish(status)
        return status

    def statements(self, node: Node, shell: ShellState) -> None:
        for child in node.named_children:
            follower = child.next_sibling
            if follower is not None and follower.type == "&":
                with self.guard():
                    shell.jobs.append(self._apart(child, shell))
                shell.finish(0)
            else:
                self.statement(child, shell)

    def statement(self, node: Node, shell: ShellState) -> None:
        self._steps -= 1
        if self._steps <= 0:
            self.trace.undecided.append(
                Undecided("the script is too long to be walked to its end", self.place(node, shell))
            )
            raise Exit(None)
        handler = HANDLERS.get(node.type)
        if handler is not None:
            handler(self, node, shell)
        elif node.type in SEQUENCES:
            self.statements(node, shell)

    def _apart(self, node: Node, shell: ShellState) -> int | None:
        inner = shell.subshell()
        return self.process(inner, lambda: self.statement(node, inner))

    @contextmanager
    def guard(self, depth: int | None = None) -> Iterator[None]:
        """A failure in here does not end the shell (`set -e`)."""
        before = self._guarded
        self._guarded = before + 1 if depth is None else depth
        try:
            yield
        finally:
            self._guarded = before

    def either(self, shell: ShellState, *branches: Callable[[ShellState], None]) -> None:
        """Walk undecided branches, each on a copy of `shell`."""
        alive: list[ShellState] = []
        ends: list[Flow] = []
        self._maybe += 1
        try:
            for branch in branches:
                copy = shell.copy()
                copy.streams.detach()
                try:
                    branch(copy)
                    alive.append(copy)
                except Flow as end:
                    ends.append(end)
        finally:
            self._maybe -= 1
        if not alive:
            raise _common(ends)
        shell.merge(alive)

    def failed(self, shell: ShellState, cause: Cause = "exit") -> None:
        """End the shell after a failure under `set -e`, after its trap."""
        if not shell.status or self._guarded:
            return
        if "ERR" in shell.traps:
            self._trapped(shell, "ERR")
        if "errexit" in shell.options:
            raise Exit(shell.status, cause)

    @contextmanager
    def insisting(self, asked: range) -> Iterator[None]:
        """A script that fails after asking for unset variables requires them."""
        try:
            yield
        except (Exit, Return) as end:
            if end.status:
                conditions.insist(self, asked)
            raise


def _common(ends: list[Flow]) -> Flow:
    """Return the branches' common end: an exit if they differ."""
    statuses = {end.status for end in ends if isinstance(end, (Exit, Return))}
    status = statuses.pop() if len(statuses) == 1 else None
    exits = [end for end in ends if isinstance(end, Exit)]
    if len(exits) == len(ends):
        causes = {end.cause for end in exits}
        return Exit(status, causes.pop() if len(causes) == 1 else "exit")
    if all(isinstance(end, Return) for end in ends):
        return Return(status)
    return next((end for end in ends if isinstance(end, (Break, Continue))), ends[0])
