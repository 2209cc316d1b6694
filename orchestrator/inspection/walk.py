"""Walk a script line by line, as bash would run it, with the values known before a run.

Both branches of undecided conditions are walked; differences after them are unknown. Nothing is
executed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.inspection import conditions, programs
from orchestrator.inspection.commands import COMMANDS
from orchestrator.inspection.flow import Break, Cause, Exit, Flow, Return
from orchestrator.inspection.interface import Answer, End
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
VARIABLES = 16
"""Copied variables that count as a step."""
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
        self.unread_source = False
        self._left: list[list[End]] = [[]]
        """Of the running loops and functions: ends in undecided branches."""
        self._keep_exits = False
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

    def note_unread(self) -> None:
        """Note that a file was sourced that was not read."""
        self.unread_source = True

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
            self._ended(inner, lambda: self.statements(node, inner), keep_exits=True)
        shell.finish(inner.status)
        return "".join(output).rstrip("\n")

    def arithmetic(self, node: Node, shell: ShellState) -> int | None:
        return conditions.arithmetic(self, shell, node)

    def evaluate(self, text: str, shell: ShellState) -> int | None:
        return conditions.evaluated(self, shell, text)

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

    def script(
        self,
        path: str,
        arguments: list[str],
        shell: ShellState,
        how: str,
        options: Iterable[str] = (),
    ) -> int | None:
        child = shell.child(path, arguments, options=options)
        with self.guard(0):
            return self.process(child, lambda: self.source(path, child, how))

    def _ended(
        self, shell: ShellState, body: Callable[[], None], *, keep_exits: bool = False
    ) -> None:
        """Walk a shell's commands up to its end."""
        before, self._keep_exits = self._keep_exits, keep_exits
        ends = self.ends(shell, body)
        self._keep_exits = before
        for flow, state in ends:
            if isinstance(flow, Exit | Return):
                state.finish(flow.status)
        self.join(shell, [state for _, state in ends])

    def process(
        self, shell: ShellState, body: Callable[[], None], *, keep_exits: bool = False
    ) -> int | None:
        """Walk a shell to its end; return its exit status.

        `keep_exits`: also of an `exit` in an undecided branch. A script is expected to reach its
        end.
        """
        text = shell.streams.captured
        self._ended(shell, body, keep_exits=keep_exits)
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
        with self.at_line(line):
            end = self.ends(shell, lambda: self.statements(parse(text), shell))[0][0]
        if isinstance(end, Exit):
            if event == "ERR":
                raise end
            return end.status
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

    def spend(self, steps: int) -> None:
        """Count work other than statements."""
        self._steps -= steps

    def statement(self, node: Node, shell: ShellState) -> None:
        self.spend(1)
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
        return self.process(inner, lambda: self.statement(node, inner), keep_exits=True)

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
        ends: list[End] = []
        self._maybe += 1
        try:
            for branch in branches:
                copy = shell.copy()
                copy.streams.detach()
                try:
                    branch(copy)
                    alive.append(copy)
                except Flow as end:
                    ends.append((end, copy))
        finally:
            self._maybe -= 1
        if not alive:
            flow, alive, ends = _common(ends)
            shell.merge(alive)
            self._keep(ends)
            raise flow
        shell.merge(alive)
        self._keep(ends)
        # No failure and no exit is expected: the rest is sure behind them.
        self._maybe += any(
            not flow.status if isinstance(flow, Return) else isinstance(flow, Break)
            for flow, _ in ends
        )

    def _keep(self, ends: list[End]) -> None:
        """Keep other ends than the usual one, whose states are joined later."""
        kept = list(filter(self._is_kept, ends))
        self._left[-1] += kept
        self.spend(sum(len(state.variables.by_name) for _, state in kept) // VARIABLES)

    def ends(self, shell: ShellState, body: Callable[[], None]) -> list[End]:
        """Walk a loop's or function's body; return its possible ends: the usual one first."""
        first: Flow | None = None
        maybe = self._maybe
        self._left.append([])
        try:
            body()
        except Flow as end:
            first = end
        finally:
            left = self._left.pop()
            self._maybe = maybe
        if not left:
            return [(first, shell)]
        here = shell.copy()
        here.streams.detach()
        for _, state in left:  # redirections in the body have ended
            state.redirect_as(here)
        return [(first, here), *left]

    def join(self, shell: ShellState, states: list[ShellState], others: Sequence[End] = ()) -> None:
        """Continue with the end of a loop or function. Without `states`, raise the first of the
        other ends."""
        rest = sorted(filter(self._is_kept, others), key=lambda end: isinstance(end[0], Exit))
        flow: Flow | None = None
        if not states:
            flow, state = (rest or others)[0]
            states, rest = [state], rest[1:]
        if states[0] is not shell:
            shell.merge(states)
        self._left[-1] += rest
        if flow is not None:
            raise flow

    def _is_kept(self, end: End) -> bool:
        return self._keep_exits or not isinstance(end[0], Exit)

    def returned(self, shell: ShellState, body: Callable[[], None]) -> None:
        """Walk a function or a sourced file."""
        states: list[ShellState] = []
        others: list[End] = []
        for flow, state in self.ends(shell, body):
            if isinstance(flow, Return):
                state.finish(flow.status)
            if flow is None or isinstance(flow, Return):
                states.append(state)
            else:
                others.append((flow, state))
        self.join(shell, states, others)

    def failed(self, shell: ShellState, cause: Cause = "exit") -> None:
        """End the shell after a failure under `set -e`, after its trap."""
        if not shell.status or self._guarded:
            return
        inside = bool(shell.variables.scopes)
        if "ERR" in shell.traps and (not inside or "errtrace" in shell.options):
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


def _common(ends: list[End]) -> tuple[Flow, list[ShellState], list[End]]:
    """Return the branches' end, their states there, and the other ends. An exit comes last."""
    flows = [flow for flow, _ in ends if flow is not None]
    first = next((flow for flow in flows if not isinstance(flow, Exit)), flows[0])
    same = [end for end in ends if _is_like(end[0], first)]
    others = [end for end in ends if not _is_like(end[0], first)]
    statuses = {flow.status for flow, _ in same if isinstance(flow, Exit | Return)}
    status = statuses.pop() if len(statuses) == 1 else None
    states = [state for _, state in same]
    if isinstance(first, Exit):
        causes = {flow.cause for flow, _ in same if isinstance(flow, Exit)}
        return Exit(status, causes.pop() if len(causes) == 1 else "exit"), states, others
    return Return(status) if isinstance(first, Return) else first, states, others


def _is_like(flow: Flow | None, other: Flow | None) -> bool:
    loops = flow.loops if isinstance(flow, Break) else 0
    return type(flow) is type(other) and loops == (other.loops if isinstance(other, Break) else 0)
