"""A node's process in a step: `_begin`, `_get_ready`, `_serve`, `_release`.

    order                     answers
    ping, at any time         pong
    beat                      none; kernel/beat.py takes it
    job_ends                  none; scratch goes at the end
    _begin                    check, network, facts, checked, waits
      pull, after `lacks`     pulled
      use                     none; unnamed nodes stay spares
    _get_ready                host, facts, ready
    _serve: prepare           prepared, refused (settings), kept (caches)
      go                      transport, inside, exit
      stop                    exit
      evidence                evidence
      use without this node   its end

    end                       run's code   messages            status   scratch
    closed input, such a use  143          exit, left          0        kept
    no beat                   143          exit, left          1        removed
    signal                    143          exit, left          143      removed
    container lost            125          exit, gone, left    1        kept
    Failed, defect            143          failed, exit, left  1        kept
    SIGKILL                   none         none                         kept

After SIGKILL other processes end container (engine.py) or runs (reaper.py) and revert settings
(tuning.py); leftovers.py finds the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..kernel.beat import listen
from ..kernel.program import Program
from ..kernel.records import write_bytes
from ..kernel.settings_file import SettingsError, load, rehearsed
from ..kernel.waiting import ENDS, Failed, ReleaseRequested, Waiting, failing
from ..kernel.world import now_ms
from .executor import Executor
from .facts import FactReporter, write_hardware
from .launch import RunRequest
from .leftovers import close_channel, holds_channel, open_channel
from .node import (
    HOST_NAME,
    HOST_S,
    OUTBOX,
    EngineState,
    Node,
    close_hidden,
    lay,
    make_hidden,
    own_name,
    runs_environment,
    say,
    this_node,
)
from .run import NO_CONTAINER, NodeRun, drop_caches, keep_unclaimed
from .tuning import Tuning, missing

if TYPE_CHECKING:
    from .checks import Checks
    from .inside import Inside
    from .network import Network
    from .scratch import Scratch

RUN_END_S = 6
_STOP_S = 3
"""From TERM to KILL of a run that ends with its agent. In a container it ends at once."""
_ADDRESS = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.connect((sys.argv[1], 9))
print(one.getsockname()[0])
"""
"""Prints this host's IPv4 address on the way to another host; nothing is sent."""


def main(program: Program, action: str) -> int:
    """Run an action; return the exit status. Errors go to the loop as `failed`.

    hold: a whole step, with all attempts; check: for preflight.sh; deep: the bandwidth test; look:
    for `orchestrator init`.
    """
    try:
        node = this_node(program, load(program.files))
    except (SettingsError, KeyError) as error:
        # The log is not known yet.
        say(
            own_name(),
            "failed",
            "internal",
            str(error) if isinstance(error, SettingsError) else f"{error} is not set",
        )
        return 1
    if action == "hold":
        return NodeAgent(node).live()
    try:
        if action == "check":
            return check(node)
        if action == "look":
            from .look import look

            return look(node)
        from .deep import main as measure

        return measure(node)
    except ReleaseRequested as request:
        return request.status
    except Exception as error:
        report_failure(node, error)
        return 1


def _other(name: str) -> str:
    first = os.environ.get("MASTER_ADDR", "")
    return (os.environ.get("ORCH_PEER") or first) if first == name else first


def report_failure(node: Node, error: Exception) -> None:
    """Report `error`. An unexpected exception's origin goes to hold.log."""
    if isinstance(error, Failed):
        node.say("failed", error.kind, error.text)
        return
    import traceback  # slow, seldom needed

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    if isinstance(error, OSError) and error.filename is not None:
        node.say("failed", "storage", f"{os.fsdecode(error.filename)}: {error.strerror}")
    else:
        node.say("failed", "internal", f"{lines[-1].strip()} (see {node.hold_log})")
    try:
        with open(node.hold_log, "a", encoding="utf-8", errors="replace") as file:
            file.writelines(lines)
    except OSError:
        node.log("".join(lines))


def check(node: Node) -> int:
    """Nothing changes or stays."""
    asked = NodeAgent(node)
    try:
        with contextlib.suppress(OSError):  # reported below
            node.make_in_set(node.folder)
        try:
            asked.look_around(pull=False, checked=True)
        except Failed as failure:
            node.log(failure.text)
        asked.wait_for_choice()
    finally:
        asked.end_checks(tell=False)
    return 0


def _own(folder: str) -> None:
    """Make this user's folder; move another user's away."""
    with contextlib.suppress(FileNotFoundError):
        if (owner := os.lstat(folder).st_uid) != os.getuid():
            try:
                os.rmdir(folder)
            except OSError:
                os.rename(folder, f"{folder}.{owner}")
    Path(folder).mkdir(exist_ok=True)


class NodeAgent:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.waiting = Waiting()
        self.tuning = Tuning(node, self.waiting)
        self.facts = FactReporter(node)
        self.scratch: Scratch | None = None
        self.job_ends = False
        self.gathers = False
        self.loop_gone = ""
        """Why the loop counts as dead while the input is open."""
        self.engine = EngineState("none", "none")
        self.checks: Checks | None = None
        self.executor = Executor()
        self.inside: Inside | None = None
        self.exports: list[tuple[str, str | None]] = []
        self.run: NodeRun | None = None
        self.requests: deque[dict[str, Any]] = deque()

    @property
    def name(self) -> str:
        return f"{self.node.owner}-{os.environ.get('ORCH_GENERATION', '0')}"

    @property
    def has_engine(self) -> bool:
        return self.node.settings.engine != "none"

    def live(self) -> int:
        """Return the exit status."""
        status = 1
        try:
            if not self.has_engine:
                from .reaper import HostExecutor

                # First: its process must inherit no other descriptors.
                self.executor = HostExecutor(self.node, self.waiting)
            listen(self.waiting, self.node.settings.storage_wait_s, self._hear, self._end_of_input)
            self._get_ready(self._begin())
            self._serve()
        except ReleaseRequested as request:
            status = request.status
        except Exception as error:
            report_failure(self.node, error)
        finally:
            self.waiting.start_release()
            self._release()
        return status

    # ---- orders of the loop

    def _hear(self, line: str) -> None:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return
        if isinstance(request, dict):
            if request.get("do") == "ping":
                run = self.run
                pulse = () if run is None or run.over else (run.request.id, *run.pulse())
                self.node.say("pong", str(request.get("n"))[:20], *pulse)
            elif request.get("do") == "job_ends":
                self.job_ends = True
            elif self._stops_now(request):
                self._stop_run()
            else:
                self.requests.append(request)

    def _stops_now(self, request: dict[str, Any]) -> bool:
        """While evidence is gathered, an order to stop the run skips the queue."""
        run = self.run
        is_stop = self.gathers and request.get("do") == "stop"
        return is_stop and run is not None and request.get("id") == run.request.id

    def _end_of_input(self, reason: str) -> None:
        if self.waiting.release_status is not None:
            return
        self.waiting.request_release(1 if reason else 0)
        if reason:
            self.loop_gone = reason
            with self.node.open_log() as log:  # nobody may read this node's messages
                log.write(f"{reason}: releasing this node\n".encode())

    def _is_named(self, request: dict[str, Any]) -> bool:
        nodes = request.get("nodes")
        return isinstance(nodes, list) and self.node.name in nodes

    # ---- getting ready

    def _begin(self) -> Network:
        """Take the node, inspect it, await the loop's choice. Raises Failed."""
        node = self.node
        with failing("storage", f"cannot write to {node.folder}"):
            node.make_in_set(node.folder)
        keep_unclaimed(node, self.waiting, self._unclaimed)
        with failing("storage", f"cannot make {node.channel}"):
            was_killed = open_channel(node)
        if was_killed and self.has_engine:
            from .container import remove_earlier

            remove_earlier(node, self.waiting)
        if node.own_code:
            with failing("storage", f"cannot write {node.code}"):
                lay(node.program.below("code/"), node.code)
        with failing("storage", f"cannot make {node.results}"):
            self._make_results()
        network = self.look_around(checked=node.settings.preflight_run == 1)
        if os.environ.get("ORCH_CHOOSE") == "1":
            self.wait_for_choice()
            self._await_word("use")
        return network

    @property
    def _unclaimed(self) -> str:
        """For files of a killed agent, or of a run that ended without storage."""
        return f"unclaimed-{self.name}"

    def _make_results(self) -> None:
        """Make a folder for this user alone, or for any user of a container. Raises OSError."""
        node = self.node
        if node.settings.results == "local":  # only this user can enter the channel
            os.makedirs(node.results, exist_ok=True)
            os.chmod(node.results, 0o1777)
            return
        _own(node.shared_results)
        if node.settings.engine == "none":
            mode = stat.S_IMODE(os.stat(node.shared_results).st_mode)
            os.chmod(node.shared_results, mode & ~0o1022)
        else:
            make_hidden(node.shared_results)

    def _await_word(self, word: str) -> None:
        """Wait for an order that names this node."""
        request: dict[str, Any] = {}
        while request.get("do") != word or not self._is_named(request):
            self.waiting.wait(lambda: self.requests)
            request = self.requests.popleft()

    def look_around(self, *, pull: bool = True, checked: bool) -> Network:
        """Look for the image, start the checks, report the network. Raises Failed."""
        node = self.node
        if self.has_engine:
            from .container import look_for_image

            self.engine = look_for_image(node, self.waiting)
            if pull and (self.engine.state, self.engine.image_id, node.settings.pull) == (
                "up",
                "",
                "missing",
            ):
                self._pull()
        if checked:
            self._start_checks(alone=not pull)
        from .network import look  # while the checks are running

        network = look(node)
        self.exports = network.exports()
        node.say("network", network.summary)
        for word, texts in (("trouble", network.troubles), ("note", network.notes)):
            for text in texts:
                node.say(word, text)
        with failing("storage", f"cannot write to {node.folder}"):
            network.record()
        return network

    def _pull(self) -> None:
        """Wait for the loop's order: nodes share a registry. Raises Failed."""
        from .pull import pull

        self.node.say("lacks")
        self._await_word("pull")
        self.engine = pull(self.node, self.waiting)
        self.node.say("pulled", self.engine.image_id)

    def _start_checks(self, *, alone: bool) -> None:
        from .checks import Checks

        checks = self.checks = Checks(self.node, self.engine, alone=alone)

        def read() -> None:
            checks.read()
            if checks.done:
                self.end_checks()

        def look() -> None:
            if (rest_s := checks.rest_s()) > 0:
                self.waiting.after("checks", min(rest_s, 1), look)
            else:
                self.end_checks()

        self.waiting.watch(checks.fileno(), read)
        look()

    def end_checks(self, *, tell: bool = True) -> None:
        checks, self.checks = self.checks, None
        if checks is not None:
            self.waiting.cancel("checks")
            self.waiting.forget(checks.fileno())
            (checks.finish if tell else checks.end)()

    def wait_for_choice(self) -> None:
        self.tuning.start_watching()
        self.facts.report(self.engine.image_id, self.tuning.values)
        self.waiting.wait(lambda: self.checks is None)
        self.node.say("waits")

    def _get_ready(self, network: Network) -> None:
        """Start the container, apply the settings. Raises Failed."""
        node, container = self.node, None
        if node.settings.scratch_dir:
            from .scratch import Scratch

            self.scratch = Scratch(node, self.waiting, self.engine.image_id)
        more = self.scratch.lines(inside=self.has_engine) if self.scratch else b""
        with failing("storage", str(node.layout.environment)):
            write_bytes(f"{node.channel}/environment.sh", runs_environment(node) + more, sync=False)
            os.chmod(f"{node.channel}/environment.sh", 0o600)
        if self.has_engine:
            from .container import ContainerExecutor

            if self.engine.problem:
                raise Failed(self.engine.kind, self.engine.problem)
            volumes = self.scratch.volumes if self.scratch else []
            container = self.executor = ContainerExecutor(
                node,
                self.waiting,
                network.used,
                f"orch-{self.name}",
                self.engine.image_id,
                volumes,
            )
        write_hardware(node)
        if note := self.tuning.apply():
            node.say("note", f"tunables: {note}")
        if container is not None:
            for text in network.check_inside(container.await_up()):
                node.say("trouble", text)
            if text := container.unlike_root():
                node.say("note", text)
        if node.settings.nnodes > 1:
            wanted = node.settings.launch_master == "address" or node.settings.launch_hosts
            name = container.host if container is not None else self._host_name()
            node.say("host", name, self._ask(_ADDRESS, _other(node.name)) if wanted else "")
        self.facts.take_contents(self._content().contents())
        if self.tuning.on:
            self.tuning.look()
        with OUTBOX.at_once():
            self.facts.report(self.engine.image_id, self.tuning.values)
            node.say("ready", self.engine.image_id)

    def _content(self) -> Inside:
        from .inside import Inside

        self.inside = self.inside or Inside(self.node, self.waiting, self.executor)
        return self.inside

    def _host_name(self) -> str:
        """ "" after a time-out."""
        if rehearsal := rehearsed("ORCH_HOST_NAME", "", self.node.name):
            return rehearsal
        return self._ask(HOST_NAME)

    def _ask(self, program: str, *arguments: str) -> str:
        status, said = self.waiting.call([sys.executable, "-ISc", program, *arguments], HOST_S)
        return said.decode("utf-8", "replace").strip() if status == 0 else ""

    # ---- runs

    def _serve(self) -> None:
        while True:
            self.waiting.wait(
                lambda: (
                    self.requests or self.executor.gone or (self.run is not None and self.run.over)
                )
            )
            if self.run is not None and self.run.over:
                self._finish(self.run)
            elif self.executor.gone:
                self._lose_executor()
            else:
                self._do(self.requests.popleft())

    def _lose_executor(self) -> None:
        self.waiting.raise_if_signalled()
        if self.run is not None:
            if self.has_engine:
                self.run.note("the container ended during the run")
            self._await_run(self.run)
        container = f"its container ended: {self.node.last_words()}"
        self.node.say(
            "gone", container if self.has_engine else "the process that starts its runs was ended"
        )
        raise ReleaseRequested(1)

    def _await_run(self, run: NodeRun) -> None:
        """Await records and messages of a run whose container ended, within a limit."""
        run.ended(NO_CONTAINER)
        if not self.has_engine:
            # Its remains cannot be ended, and may keep its output open.
            run.stop()
        if not self.waiting.wait(lambda: run.over, RUN_END_S, patient=True):
            run.close()
        self._finish(run)

    def _finish(self, run: NodeRun) -> None:
        run.files.finish()
        if not self.waiting.releasing:
            self.run = None

    def _do(self, request: dict[str, Any]) -> None:
        word, run = request.get("do"), self.run
        if word == "use" and not self._is_named(request):
            raise ReleaseRequested(0)
        if word == "prepare" and self._is_named(request):
            wanted = RunRequest.of(request)
            if wanted is None:
                self.node.log("a request to prepare a run that cannot be read")
            else:
                self._prepare(wanted)
        elif run is not None and request.get("id") == run.request.id:
            if word == "go":
                run.go()
            elif word == "stop":
                run.stop()
            elif word == "evidence":
                self._gather(run.request)

    def _gather(self, request: RunRequest) -> None:
        from .evidence import gather  # seldom needed

        self.gathers, activity = True, ""
        try:
            activity = gather(self.node, self.waiting, self.executor, request)
        except OSError as error:  # it must not end a run that may be healthy
            self.node.log(f"no evidence of the run: {error}")
        finally:
            self.gathers = False
        self.node.say("evidence", request.id, activity)

    def _prepare(self, request: RunRequest) -> None:
        """Caches come last: nothing fills them again before the run."""
        node, old = self.node, self.run
        if old is not None:
            old.stop()
            self.waiting.wait(lambda: old.over or self.executor.gone)
            if self.executor.gone:
                return
            self._finish(old)
        keep_unclaimed(node, self.waiting, f"{self._unclaimed}-{request.id}")
        cache = self.scratch.look() if self.scratch else {}
        run = self.run = NodeRun(
            node, self.waiting, self.tuning, self.executor, request, self._content(), cache
        )
        run.offer(self.exports)
        if self.tuning.on and (problem := missing(self.tuning.look())):
            run.withdraw()
            node.say("refused", request.id, problem)
            return
        self.facts.report(self.engine.image_id, self.tuning.values)
        before = after = "-"
        if request.clear:
            try:
                before, after = map(str, drop_caches(node, self.waiting))
            except Failed as failure:
                run.withdraw()
                node.say("kept", request.id, failure.text)
                return
        node.say("prepared", request.id, now_ms(), before, after)

    # ---- and back

    def _release(self) -> None:
        """A failing part does not prevent the next.

        Settings are put back while the run ends: the loop uses force after RELEASE_S.
        """
        parts: tuple[Callable[[], object], ...] = (
            lambda: self.end_checks(tell=False),
            self._stop_run,
            self.executor.release,
            self._put_back,
            self._end_run,
            self._close_inside,
            self.executor.close,
            self._end_scratch,
            self._close_results,
            self._close_channel,
        )
        for part in parts:
            try:
                part()
            except Exception as error:
                report_failure(self.node, error)
        # A later signal must not turn the end into an error.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        self.node.say("left", self.loop_gone)

    def _stop_run(self) -> None:
        if self.run is not None:
            self.run.stop(_STOP_S)

    def _end_run(self) -> None:
        if (run := self.run) is not None:
            self.waiting.wait(lambda: run.over or self.executor.gone, RUN_END_S)
            self._await_run(run)

    def _close_inside(self) -> None:
        if self.inside is not None:
            self.inside.close()

    def _end_scratch(self) -> None:
        """A new container of the same job needs the folder."""
        if self.scratch is not None and (self.job_ends or self.waiting.release_status):
            self.scratch.remove()

    def _close_results(self) -> None:
        if self.node.settings.results == "shared" and self.has_engine:
            close_hidden(self.node.shared_results)

    def _close_channel(self) -> None:
        """A later agent of the job may have taken it."""
        if holds_channel(self.node):
            if self.run is not None:
                self.run.files.copy()
            keep_unclaimed(self.node, self.waiting, self._unclaimed)
            close_channel(self.node)

    def _put_back(self) -> None:
        if problem := self.tuning.revert():
            self.node.log(f"tunables could not be reverted: {problem}")
            if self.tuning.has_changed:
                self.node.say("revert-failed", problem)
