"""The life of a node in a job: checks, container, settings, runs, and back to what it was."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ..records import read_bytes, write_bytes
from .container import Container, EngineState, look_for_image
from .leftovers import close_channel, open_channel
from .node import Node
from .run import NO_CONTAINER, Order, Run, keep_files
from .serve import tell_failure
from .tuning import Tuning, last_words, missing
from .waiting import ENDS, Failed, LetGo, Waiting
from .warden import Host

if TYPE_CHECKING:
    from .checks import Checks
    from .network import Network

RUN_END_S = 6
_STOP_S = 3


def hold(node: Node) -> int:
    """Hold the node until the loop lets go of it; return the exit status."""
    return Hold(node).live()


def check(node: Node) -> int:
    """Tell what preflight.sh asks of a node; nothing is changed, and nothing stays."""
    try:
        os.makedirs(node.folder, exist_ok=True)
    except OSError as error:
        node.log(f"cannot write to {node.folder}: {error.strerror}")
    asked = Hold(node, listening=False)
    try:
        asked.look_around(pull=False, checked=True)
        asked.tuning.look_at_boot()
        asked.tuning.tell_facts(asked.engine.image_id)
        asked.waiting.wait(lambda: asked.checks is None)
        node.say("waits")
    except LetGo as order:
        return order.status
    finally:
        if asked.checks is not None:
            asked.checks.end()
    return 0


class Hold:
    """One node, what it has, and what the loop asks of it. `listening`: whether orders come on standard input."""

    def __init__(self, node: Node, *, listening: bool = True) -> None:
        self.node = node
        self.waiting = Waiting()
        # First: what is open now is all that its process inherits.
        self.place: Container | Host | None = None
        if listening and node.settings.engine == "none":
            self.place = Host(node, self.waiting)
        self.tuning = Tuning(node, self.waiting)
        self.engine = EngineState("none", "none")
        self.checks: Checks | None = None
        self.network: Network | None = None
        self.run: Run | None = None
        self.requests: deque[dict[str, Any]] = deque()
        if listening:
            self.waiting.watch_lines(0, self._hear, self._end_of_input)

    def live(self) -> int:
        """Do all of it. Whatever happens on the way, the node is left as it was found, and says `left`."""
        node, status = self.node, 1
        try:
            self._begin()
            self._get_ready()
            self._serve()
        except LetGo as order:
            status = order.status
        except Exception as error:
            tell_failure(node, error)
        finally:
            self.waiting.leaving = True
            self._release()
        return status

    # ---- what the loop says

    def _hear(self, line: str) -> None:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(request, dict):
            return
        if request.get("do") == "ping":
            self.node.say("pong", str(request.get("n"))[:20])
        else:
            self.requests.append(request)

    def _end_of_input(self) -> None:
        if self.waiting.order is None:
            self.waiting.order = 0

    def _is_named(self, request: dict[str, Any]) -> bool:
        nodes = request.get("nodes")
        return isinstance(nodes, list) and self.node.name in nodes

    # ---- to a node that is ready

    def _begin(self) -> None:
        node = self.node
        try:
            os.makedirs(node.folder / "scratch", exist_ok=True)
        except OSError as error:
            raise Failed("storage", f"cannot write to {node.folder}: {error.strerror}") from error
        # What a killed attempt could not keep itself must not fall to the next one.
        generation = os.environ.get("ORCH_GENERATION", "0")
        keep_files(node, node.folder / f"unclaimed-{node.owner}-{generation}" / "files" / node.name)
        try:
            open_channel(node)
        except OSError as error:
            raise Failed("storage", f"cannot make {node.channel}: {error.strerror}") from error
        self.look_around(checked=node.settings.preflight_run == 1)
        if os.environ.get("ORCH_CHOOSE") == "1":
            self.tuning.look_at_boot()
            self.tuning.tell_facts(self.engine.image_id)
            self.waiting.wait(lambda: self.checks is None)
            node.say("waits")
            while not self._next_use():
                self.waiting.wait(lambda: self.requests)

    def _next_use(self) -> bool:
        """Go through the requests up to one that wants this node."""
        while self.requests:
            request = self.requests.popleft()
            if request.get("do") == "use" and self._is_named(request):
                return True
        return False

    def look_around(self, *, pull: bool = True, checked: bool) -> None:
        """Look for the image, start the checks where they are `checked`, and tell about the network. Raises Failed."""
        from .network import look

        node = self.node
        self.engine = look_for_image(node, self.waiting.call, pull=pull)
        if checked:
            self._start_checks()
        self.network = look(node)
        try:
            self.network.record()
        except OSError as error:
            if pull:
                raise Failed("storage", f"cannot write to {node.folder}: {error.strerror}") from error
            node.log(f"cannot write to {node.folder}: {error.strerror}")
        node.say("network", self.network.summary)
        for word, texts in (("trouble", self.network.troubles), ("note", self.network.notes)):
            for text in texts:
                node.say(word, text)

    def _start_checks(self) -> None:
        from .checks import Checks

        checks = self.checks = Checks(self.node, self.engine)

        def finish() -> None:
            self.waiting.cancel("checks")
            self.waiting.forget(checks.fileno())
            self.checks = None
            checks.finish()

        def read() -> None:
            checks.read()
            if checks.done:
                finish()

        self.waiting.watch(checks.fileno(), read)
        self.waiting.at("checks", checks.deadline, finish)

    def _get_ready(self) -> None:
        """Have the container and the settings of a node that is used. Raises Failed."""
        from .facts import write_hardware

        node = self.node
        assert self.network is not None
        try:
            environment = read_bytes(node.layout.environment)
            write_bytes(f"{node.channel}/environment.sh", environment, sync=False)
            os.chmod(f"{node.channel}/environment.sh", 0o600)
        except OSError as error:
            raise Failed("storage", f"{node.layout.environment}: {error.strerror}") from error
        if node.settings.engine != "none":
            if self.engine.problem:
                raise Failed(self.engine.kind, self.engine.problem)
            generation = os.environ.get("ORCH_GENERATION", "0")
            self.place = Container(node, self.waiting, self.network.used, generation)
        write_hardware(node)
        if note := self.tuning.apply():
            node.say("note", f"tunables: {note}")
        if isinstance(self.place, Container):
            self.place.await_up()
            for text in self.network.check_inside(self.place.told):
                node.say("trouble", text)
        if self.tuning.on:
            self.tuning.look()
        self.tuning.tell_facts(self.engine.image_id)
        node.say("ready", self.engine.image_id)

    # ---- runs

    def _serve(self) -> None:
        assert self.place is not None
        place = self.place
        while True:
            self.waiting.wait(lambda: self.requests or place.gone or (self.run is not None and self.run.over))
            if self.run is not None and self.run.over:
                self.run = None
            elif place.gone:
                self._place_is_gone()
            elif self.requests:
                self._do(self.requests.popleft())

    def _place_is_gone(self) -> None:
        self.waiting.let_signals_come()
        if self.run is not None:
            if isinstance(self.place, Container):
                self.run.note("the container ended during the run")
            self._await_run(NO_CONTAINER)
        if isinstance(self.place, Container):
            self.node.say("gone", f"its container ended: {last_words(self.node)}")
        else:
            self.node.say("gone", "the process that starts its runs was ended")
        raise LetGo(1)

    def _await_run(self, code: int) -> None:
        """Take its end as `code`, and wait until all is recorded and said; by force after a while."""
        run = self.run
        if run is not None:
            run.ended(code)
            if isinstance(self.place, Host):
                # Nobody can end what it has left behind, so its output may never end.
                run.stop()
            if not self.waiting.wait(lambda: run.over, RUN_END_S, patient=True):
                run.close()
            self.run = None

    def _do(self, request: dict[str, Any]) -> None:
        word, run = request.get("do"), self.run
        if word == "use" and not self._is_named(request):
            raise LetGo(0)
        if word == "prepare" and self._is_named(request):
            order = Order.of(request)
            if order is None:
                self.node.log("a request to prepare a run that cannot be read")
            else:
                self._prepare(order)
        elif run is not None and request.get("id") == run.order.id:
            if word == "go":
                run.go()
            elif word == "stop":
                run.stop()

    def _prepare(self, order: Order) -> None:
        """Pass the gate of a run. Its script is read meanwhile; the caches come last: nothing fills them again before it."""
        node, place, network = self.node, self.place, self.network
        assert place is not None and network is not None
        if self.run is not None:
            old = self.run
            old.stop()
            self.waiting.wait(lambda: old.over or place.gone)
            if place.gone:
                return
        run = self.run = Run(node, self.waiting, self.tuning, place, order)
        run.offer(network.exports())
        if self.tuning.on:
            knobs = self.tuning.look()
            problem = "its settings cannot be looked at (hold.log)" if knobs is None else missing(knobs)
            if problem:
                run.withdraw()
                node.say("refused", order.id, problem)
                return
        self.tuning.tell_facts(self.engine.image_id)
        before = after = "-"
        if order.clear:
            try:
                before, after = map(str, self.tuning.drop_caches())
            except Failed as failure:
                run.withdraw()
                node.say("kept", order.id, failure.text)
                return
        node.say("prepared", order.id, time.time_ns() // 1_000_000, before, after)

    # ---- and back

    def _release(self) -> None:
        """Let go. One part that fails does not keep the next from its work; `left` is the last word."""
        for part in (self._end_work, self._put_back, self._end_run, self._end_place, self._remove_channel):
            try:
                part()
            except Exception as error:
                tell_failure(self.node, error)
        # What comes now has nothing to end any more, and must not make an error of the way out.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        self.node.say("left")

    def _end_work(self) -> None:
        if self.checks is not None:
            self.waiting.cancel("checks")
            self.waiting.forget(self.checks.fileno())
            self.checks.end()
        if self.run is not None:
            self.run.stop(_STOP_S)
        if isinstance(self.place, Container):
            self.place.let_go()

    def _put_back(self) -> None:
        if problem := self.tuning.revert():
            self.node.log(f"tunables could not be reverted: {problem}")

    def _end_run(self) -> None:
        run, place = self.run, self.place
        if run is None or place is None:
            return
        self.waiting.wait(lambda: run.over or place.gone, RUN_END_S)
        self._await_run(NO_CONTAINER)

    def _end_place(self) -> None:
        if self.place is not None:
            self.place.close()

    def _remove_channel(self) -> None:
        close_channel(self.node)
