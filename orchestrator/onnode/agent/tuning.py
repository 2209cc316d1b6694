"""Host settings before and after a run (docs/tuning.md).

runtime_tunables.sh alone decides whether a setting holds. Its verb `watch` lives as long as the
agent, so that a check costs no process. Its `apply` starts the watchdog, outside of the job, which
reverts within ORCH_LEASE_S after a SIGKILL of the agent.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from ..kernel.waiting import CANNOT_START, Failed, Partner, Waiting
from .node import Node, shortened

SCRIPT = "runtime_tunables.sh"
ANSWER_S = 60
_REVERT_TRIES = 3
_EVAL_STDIN = 'trap "" TERM INT HUP; eval "$(cat)"'
"""If cat dies, the script is empty, and bash exits with 0."""
_HEADER = b"knob\twanted\tbefore\tafter\tresult\tneed\taction\ttime_ms\ttarget\n"


class FoundKnob(NamedTuple):
    """A setting's state. `mode`: set or look; `need`: required or optional; `word`: holds, fails or
    unsupported."""

    name: str
    value: str
    wanted: str
    need: str
    mode: str
    word: str


class _Row(NamedTuple):
    """A row of an apply or revert. `word`: ok, failed, unsupported; complete in the last."""

    name: str
    wanted: str
    before: str
    after: str
    word: str
    need: str

    @property
    def mismatch(self) -> str:
        return f"{self.name} wanted {self.wanted}, found {self.after}"

    @property
    def is_lacking(self) -> bool:
        return (self.word, self.need) == ("unsupported", "required")


class _Reply(NamedTuple):
    """The script's exit status and rows. `problem`: why it did not finish, or ""."""

    status: int
    rows: list[_Row]
    problem: str

    @property
    def failed(self) -> list[_Row]:
        return [row for row in self.rows if row.word == "failed"]

    @property
    def is_complete(self) -> bool:
        return any(row.word == "complete" for row in self.rows)


Answer = Optional[list[FoundKnob]]
"""None: unreadable."""


def missing(knobs: Answer) -> str:
    """Return why these settings prevent a run, or ""."""
    if knobs is None:
        return "its settings cannot be read (hold.log)"
    wrong = [knob for knob in knobs if knob.word == "fails" and knob.need == "required"]
    return "; ".join(f"{knob.name} wanted {knob.wanted}, found {knob.value}" for knob in wrong)


def drift(knobs: Answer) -> list[dict[str, Any]]:
    """Settings of mode `set` that do not hold, for a run's record."""
    return [
        {"knob": knob.name, "wanted": knob.wanted, "found": knob.value, "need": knob.need}
        for knob in knobs or []
        if knob.word == "fails" and knob.mode == "set"
    ]


class Tuning:
    def __init__(self, node: Node, waiting: Waiting) -> None:
        self._node, self._waiting = node, waiting
        self.on = node.settings.runtime_tunables == 1
        self.has_changed = False
        """The script may have changed a setting of this host."""
        self._script = node.program.files.get(SCRIPT, b"")
        self._name = f"{node.layout.bundle}/{SCRIPT}"
        """For lists of processes; no file is read."""
        self._roots = {"ORCH_TUNABLES_ROOT": node.root}
        if state := os.environ.get("ORCH_TUNABLES_STATE", ""):
            self._roots["ORCH_TUNABLES_STATE"] = state.replace("%n", node.name)
        self._watcher: Partner | None = None
        self._heard: list[FoundKnob] = []
        self._asked: deque[Callable[[Answer], object]] = deque()
        self._boot: list[FoundKnob] = []
        self._knobs: list[FoundKnob] = []

    @property
    def values(self) -> dict[str, str]:
        """Return all settings as last read."""
        return {knob.name: knob.value for knob in (*self._knobs, *self._boot)}

    # ---- setting and putting back

    def apply(self) -> str:
        """Return remarks. Raises Failed if a required setting fails."""
        if not self.on:
            return ""
        reply = self._call("apply")
        self.has_changed = reply.status > 128 or bool(reply.rows)
        required = [row.mismatch for row in reply.failed if row.need == "required"]
        if reply.problem or required:
            problem = "; ".join(filter(None, [reply.problem, *required]))
            raise Failed("tunables", f"tunables: {problem}")
        notes = [row.mismatch for row in reply.failed]
        notes += [f"{row.name} unsupported on this host" for row in reply.rows if row.is_lacking]
        return shortened("; ".join(notes), 800)

    def revert(self) -> str:
        """Return the failures; another living owner, who keeps the values, is none. A failure of
        something else meanwhile is reported, and the script runs again."""
        problem = ""
        for _ in range(_REVERT_TRIES if self.on else 0):
            try:
                reply = self._call("revert")
            except Failed as failure:
                self._node.say("failed", failure.kind, failure.text)
                problem = failure.text
                continue
            if reply.is_complete:
                return ""
            mismatches = dict.fromkeys(row.mismatch for row in reply.failed)
            problem = "; ".join(mismatches) or reply.problem
        return shortened(problem, 800)

    def _call(self, action: str) -> _Reply:
        """Signals to the whole job do not interrupt the script."""
        # Root may not see the storage, so it runs the text read at the start.
        with self._node.open_log() as errors:
            status, output = self._waiting.call(
                self._argv(action), patient=True, shielded=True, errors=errors, given=self._script
            )
        self._keep(output)
        text = output.decode("utf-8", "replace")
        cells = [(line.split("\t") + [""] * 6)[:6] for line in text.splitlines()]
        rows = [_Row(*row) for row in cells if row[4]]
        done = _Reply(status, rows, "")
        return done if done.is_complete else done._replace(problem=self._problem(status, text))

    def _problem(self, status: int, text: str) -> str:
        if status == CANNOT_START:
            return text
        if status > 128:
            return f"its script was ended by signal {status - 128}"
        unclear = f"its script ended with {status} before it was complete"
        return (self._node.last_words() or unclear) if status else unclear

    def _argv(self, action: str) -> list[str]:
        owner = {
            "ORCH_OWNER_PID": os.getpid(),
            "ORCH_LEASE_S": self._node.settings.orch_lease_s,
            **self._roots,
        }
        variables = [f"{name}={value}" for name, value in owner.items()]
        shell = ["bash", "-c", _EVAL_STDIN, self._name, action, self._node.owner]
        return [*self._node.settings.sudo, "env", *variables, *shell]

    def _keep(self, rows: bytes) -> None:
        try:
            with open(self._node.folder / "tunables.tsv", "ab") as file:
                file.write((b"" if file.tell() else _HEADER) + rows)
        except OSError as error:
            self._node.log(f"cannot write {self._node.folder}/tunables.tsv: {error.strerror}")

    # ---- looking

    def start_watching(self) -> None:
        """Start the watching script, which first reports settings that only a boot changes."""
        if not self.on or self._watcher is not None:
            return
        with self._node.open_log() as errors, os.fdopen(os.memfd_create(SCRIPT), "wb") as script:
            script.write(self._script)
            script.flush()
            self._watcher = Partner(
                self._waiting,
                ["bash", "-c", f". /proc/self/fd/{script.fileno()}", self._name, "watch"],
                self._hear,
                self._nobody_looks,
                errors=errors,
                environment={**os.environ, **self._roots},
                held=[script.fileno()],
            )
        self._boot = self._answer(self._asked.append) or []  # the first answer comes unasked

    def look(self) -> Answer:
        """Return the present settings; serve everything else meanwhile."""
        self.start_watching()
        answer = self._answer(self.ask)
        self._knobs = answer or self._knobs
        return answer

    def _answer(self, ask: Callable[[Callable[[Answer], object]], None]) -> Answer:
        answers: list[Answer] = []
        ask(answers.append)
        self._waiting.wait(lambda: answers, ANSWER_S)
        return answers[0] if answers else None

    def ask(self, then: Callable[[Answer], object]) -> None:
        if self._watcher is not None and self._watcher.send(""):
            self._asked.append(then)
        else:
            then(None)

    def _hear(self, line: str) -> None:
        cells = line.split("\t")
        if len(cells) == 6:
            self._heard.append(FoundKnob(*cells))
        elif not line and self._asked:
            heard, self._heard = self._heard, []
            self._asked.popleft()(heard)

    def _nobody_looks(self) -> None:
        if self._watcher is not None:
            self._watcher.input.close()
        while self._asked:
            self._asked.popleft()(None)
