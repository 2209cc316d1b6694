"""Simulated agents, with the agent's protocol (orchestrator/onnode/agent; docs/events.md).

tests/onnode/test_agent_contract.py sends the same orders and mishaps to a real agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.onnode.agent.checks import NAMES
from orchestrator.onnode.agent.launch import RunRequest
from orchestrator.onnode.agent.run import ENDED_BY_US, NO_CONTAINER
from orchestrator.onnode.kernel.beat import LOOK_S, LoopWatch
from orchestrator.onnode.kernel.events import UNIT
from orchestrator.onnode.kernel.files import make_below
from orchestrator.simulation.agent_parts import AgentPost, Departure, OrderQueue, SimContainer
from orchestrator.simulation.engine import Timer
from orchestrator.simulation.machine import NodeCondition, Span
from orchestrator.simulation.node_run import Part, TrainingRun

LINE_BYTES = 960


class Agent:
    """A node's agent in a step."""

    def __init__(
        self, post: AgentPost, training: Callable[[TrainingRun], Part], running: list[Agent]
    ) -> None:
        """`running`: the node's agents."""
        self.post, self.process, self.machine = post, post.process, post.machine
        self.training, self._running = training, running
        self.run: TrainingRun | None = None
        self.container, self._orders = SimContainer(post), OrderQueue()
        self._departure = Departure()
        self.used = post.environment.get("ORCH_CHOOSE") != "1"
        self.looked = self.checked = self.ready = False
        running.append(self)
        self.process.deaths.append(self._died)
        self.watch = LoopWatch(post.settings.storage_wait_s)
        self.process.after(LOOK_S, self._look_for_loop)
        self._next(post.pace.launch, self._begin)

    @property
    def name(self) -> str:
        return self.machine.name

    def _soon(self, span: Span, action: Callable[[], object]) -> Timer:
        seconds = self.process.engine.between(*span) * self.machine.slow
        return self.process.after(seconds, action)

    def _next(self, span: Span, action: Callable[[], object]) -> None:
        """Run `action` unless the agent leaves before."""
        self._soon(span, lambda: None if self._departure.begun else action())

    def wall_ms(self) -> int:
        return self.process.engine.wall_ms + self.machine.clock_ms

    def say(self, word: str, *fields: str | int) -> None:
        text = f"{word}\t{self.name}\t{UNIT.join(map(str, fields))}"
        self.post.write_line(text.encode("utf-8", "replace")[:LINE_BYTES])

    def forge(self, node: str) -> None:
        self.post.write_line(f"left\t{node}\t".encode())

    def flood(self) -> None:
        """Send 540 KB in a few seconds."""
        for k in range(600):
            self.process.after(k * 0.01, lambda: self.say("note", "a word too many " * 55))

    def fail(self, kind: str, text: str) -> None:
        self.say("failed", kind, text)
        self._departure.exit_with(1)
        self.leave()

    def _begin(self) -> None:
        if self.machine.condition.floods:
            self.flood()
        if self.machine.condition.forges:
            self.forge(self.machine.condition.forges)
        folder = self.post.layout.node(self.name)
        try:
            make_below(self.post.layout.root, folder, self.post.files)
        except OSError as error:
            return self.fail("storage", f"cannot write to {folder}: {error.strerror}")
        self.container.look_for_image()
        if self.container.missing_image and self.post.settings.pull == "missing":
            self.say("lacks")
            self._orders.await_only("pull")
            return self._serve()
        self._look()

    def _look(self) -> None:
        if self.post.settings.preflight_run == 1:
            for name in self.post.settings.preflight_skip:
                self.say("check", name, "skip", 0, "switched off (preflight.skip)", "")
            self._next(self.post.pace.checks, self._check)
        else:
            self.checked = True
        self.say("network", self.machine.condition.network)
        self.looked = True
        if self.used:
            self._get_ready()
            return
        self._send_facts()
        if self.checked:
            self._wait_for_choice()

    def _check(self) -> None:
        for name in NAMES:
            if name not in self.post.settings.preflight_skip:
                text = self._problem(name)
                bad = "warn" if name in self.post.settings.preflight_warn else "fail"
                self.say("check", name, bad if text else "pass", 10, text or "as it should be", "")
        self.say("same", "data=1 file, 10 bytes")
        self.say("checked", self.wall_ms())
        self.checked = True
        if not self.used:
            self._wait_for_choice()

    def _problem(self, check: str) -> str:
        if check == "log_dir":
            return self._marker()
        return self.machine.condition.failing.get(check, "") or (
            self.container.missing_image if check == "image" else ""
        )

    def _marker(self) -> str:
        """Check shared storage. Return an error, or ""."""
        environment, files = self.post.environment, self.post.files
        marker = environment.get("ORCH_MARKER", "")
        if not marker:
            return ""
        try:
            text = files.read_bytes(marker).decode().strip()
            files.write(f"{marker}.{self.name}", f"{text}\n".encode())
        except OSError as error:
            return f"{marker}: {error.strerror}"
        return "" if text == environment["ORCH_MARKER_TEXT"] else f"{marker} has other words"

    def _wait_for_choice(self) -> None:
        self.say("waits")
        self._orders.await_only("use")
        self._serve()

    def _send_facts(self) -> None:
        if facts := self.container.changed_facts():
            self.say("facts", *facts)
            self._send_contents()

    def _send_contents(self) -> None:
        if contents := self.container.contents:
            self.say("facts+", *contents)

    def _get_ready(self) -> None:
        self._next(self._start_span, self._is_ready)

    @property
    def _start_span(self) -> Span:
        return self.post.pace.container if self.container.wanted else self.post.pace.start

    def _is_ready(self) -> None:
        if text := self.container.missing_image:
            return self.fail("image", text)
        if text := self.container.tune():
            return self.fail("tunables", f"tunables: {text}")
        if text := self.container.start():
            return self.fail("container", f"the container ended at once: {text}")
        if self.post.settings.nnodes > 1:
            self.say("host", f"{self.name}.cluster", "")
        self._send_facts()
        self.container.note_contents()
        self._send_contents()
        self.say("ready", self.container.image if self.container.wanted else "none")
        self.ready = True
        self._serve()

    def hear(self, message: Mapping[str, Any]) -> None:
        self.watch.reset()
        word, run = message.get("do"), self.run
        if word == "ping":
            self.post.write_line(self.pong(message))
        elif self._orders.gathers and word == "stop" and run and message.get("id") == run.id:
            run.stop()  # it cannot wait for the evidence
        else:
            self._orders.add(message)
            self._serve()

    def pong(self, message: Mapping[str, Any]) -> bytes:
        run = self.run
        if run is None:
            return f"pong\t{self.name}\t{message.get('n')}".encode()
        about = UNIT.join((str(message.get("n")), run.id, *map(str, run.log.output.pulse())))
        return f"pong\t{self.name}\t{about}".encode()

    def _serve(self) -> None:
        orders = self._orders
        while not self._departure.begun and (message := orders.next(ready=self.ready)):
            self._await(message) if orders.awaited else self._do(message)

    def _is_named(self, message: Mapping[str, Any]) -> bool:
        nodes = message.get("nodes")
        return isinstance(nodes, list) and self.name in nodes

    def _await(self, message: dict[str, Any]) -> None:
        if message.get("do") != self._orders.awaited or not self._is_named(message):
            return
        self._orders.await_only("")
        if message["do"] == "pull":
            self._next(self.post.pace.pull, self._pulled)
        else:
            self.used = True
            self._get_ready()

    def _pulled(self) -> None:
        if text := self.machine.condition.failing.get("pull", ""):
            return self.fail("image", f"cannot pull {self.post.settings.cont}: {text}")
        self.machine.change(image=NodeCondition.image)
        self.container.look_for_image()
        self.say("pulled", self.container.image)
        self._look()

    def _do(self, message: dict[str, Any]) -> None:
        word, run, named = message.get("do"), self.run, self._is_named(message)
        if word == "use" and not named:
            self.leave()
        elif word == "prepare" and named:
            request = RunRequest.of(message)
            if request is not None:
                self._prepare(request)
        elif run is not None and message.get("id") == run.id:
            if word == "go":
                run.go()
            elif word == "stop":
                run.stop()
            elif word == "evidence":
                self._orders.pause(gathers=True)
                self._next(self.post.pace.evidence, lambda: self._send_evidence(run))

    def _prepare(self, request: RunRequest) -> None:
        if self.run is not None:
            self.run.stop()
        self._orders.pause()
        self._next(self.post.pace.prepare, lambda: self._prepared(request))

    def _prepared(self, request: RunRequest) -> None:
        if self.run is not None and not self.run.over:
            self._next((0.1, 0.1), lambda: self._prepared(request))
            return
        self._orders.resume()
        self.run = TrainingRun(self, request)
        if self.run.offer():
            self._pass_gate(request)
            self._serve()

    def _pass_gate(self, request: RunRequest) -> None:
        condition = self.machine.condition
        if condition.refuses:
            self.run = None
            self.say("refused", request.id, condition.refuses)
            return
        self._send_facts()
        if request.clear and condition.keeps_caches:
            self.run = None
            self.say("kept", request.id, f"cannot drop caches: {condition.keeps_caches}")
        else:
            kib = (4_000_000, 200_000) if request.clear else ("-", "-")
            self.say("prepared", request.id, self.wall_ms(), *kib)

    def _send_evidence(self, run: TrainingRun) -> None:
        """Send it, even after the run's end."""
        path = self.post.layout.hang(run.request.run, run.request.attempt, self.name)
        try:
            self.post.files.make_folder(path.parent, exist_ok=True)
            self.post.files.write(path, f"{self.name}: {run.doing}\n".encode())
        except OSError:
            pass  # the message alone is evidence, too
        self.say("evidence", run.id, run.doing)
        self._orders.resume()
        if self.container.lost and not self._departure.begun:
            self._lose_place()
        self._serve()

    def release(self, run: TrainingRun) -> None:
        if self.run is run and not self._departure.begun:
            self.run = None

    def end_input(self) -> None:
        """Leave: the loop released it, or is dead."""
        self.leave()

    def _look_for_loop(self) -> None:
        if self._departure.begun:
            return
        if reason := self.watch.check():
            self._departure.explain(reason)
            self.leave()
        else:
            self.process.after(LOOK_S, self._look_for_loop)

    def terminate(self) -> None:
        self._departure.interrupt(ENDED_BY_US)
        self.leave()

    def lose_container(self) -> None:
        self.container.lose()
        if self.run is not None:
            self.run.stall()
        if not self._departure.begun and not self._orders.gathers:
            self._lose_place()

    def _lose_place(self) -> None:
        self.ready = False
        if self.run is not None and not self.run.over:
            self.run.ended(NO_CONTAINER)
        container = "its container ended: exit status 137"
        place = container if self.container.wanted else "the process that starts its runs was ended"
        self.say("gone", place)
        self._departure.exit_with(1)
        self.leave()

    def leave(self) -> None:
        """End run and container, revert settings, and send `left` last."""
        if not self._departure.begin():
            return
        if self.run is not None and not self.run.over:
            self.run.stop(kill_s=3.0)
        self._soon(self.post.pace.release, self._left)

    def _left(self) -> None:
        if self.run is not None and not self.run.over:
            self._soon((0.2, 0.5), self._left)
            return
        self.container.remove()
        if text := self.container.revert():
            self.say("revert-failed", text)
        self.say("left", self._departure.reason)
        self.post.gone(self.name, self._departure.finish())
        self.process.kill()

    def _died(self) -> None:
        """Its container ends a little later."""
        if self in self._running:
            self._running.remove(self)
        engine, tuned_by, owner = self.process.engine, self.machine.tuned_by, self.container.owner
        engine.after(0.5, self.container.remove)
        engine.after(float(self.post.settings.orch_lease_s), lambda: tuned_by.discard(owner))
        if not self._departure.over:
            self.post.gone(self.name, "Killed")
