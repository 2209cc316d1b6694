"""Pull a missing image; retry transient errors, report progress."""

from __future__ import annotations

import re
import subprocess
import time

from ..kernel.client import with_proxy
from ..kernel.plural import count
from ..kernel.waiting import Failed, Partner, Waiting, end_session, failing
from .container import look_for_image, pulled_name
from .node import EngineState, Node, shortened

SAY_S = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5, 300
_BUSY = re.compile(r"\b429\b|too ?many ?requests", re.I)
_FINAL = re.compile(
    r"manifest unknown|not found|denied|unauthorized|no such host|no space left|x509", re.I
)
_PASSING = re.compile(
    r"time-?d? ?out|deadline exceeded|connection (?:reset|refused|closed)|broken pipe|\bEOF\b"
    r"|network is unreachable|"
    r"no route to host|server misbehaving|temporary failure|bad gateway|service unavailable"
    r"|internal server error",
    re.I,
)
_LAYER = re.compile(r"([0-9a-f]{12}): (.*)")


def pause_s(output: str, tries: int, left_s: float) -> int | None:
    """None: give up. `output`: the engine's last line.

    Busy registries, time-outs and broken connections pass; a missing or refused image does not.
    """
    passes = _BUSY.search(output) or (_PASSING.search(output) and not _FINAL.search(output))
    pause = min(_FIRST_PAUSE_S << min(tries - 1, 9), _LONGEST_PAUSE_S)
    return pause if passes and pause < left_s else None


class Progress:
    def __init__(self) -> None:
        self.last = ""
        self._layers: dict[str, str] = {}

    def take(self, line: str) -> None:
        if layer := _LAYER.fullmatch(line.strip()):
            self._layers[layer[1]] = layer[2]
        self.last = line.strip() or self.last

    @property
    def text(self) -> str:
        """Layers done, or the last line of an engine without counts."""
        done = sum(state in ("Pull complete", "Already exists") for state in self._layers.values())
        return (
            f"{done} of {count(len(self._layers), 'layer')}"
            if self._layers
            else shortened(self.last, 200)
        )


def pull(node: Node, waiting: Waiting) -> EngineState:
    """Return the engine's state. Raises Failed with the engine's message."""
    settings, tries = node.settings, 0
    end = time.monotonic() + 60 * settings.pull_minutes
    # Nodes of one host share an engine, and so their pulls.
    while not (state := look_for_image(node, waiting)).image_id:
        tries += 1
        done, output = _try(node, waiting, end)
        pause = pause_s(output, tries, end - time.monotonic())
        if not done and pause is None:
            minutes = count(settings.pull_minutes, "minute")
            late = f"after {count(tries, 'try')} in {minutes}: "
            spent = tries > 1 or time.monotonic() >= end
            built = f"; {settings.built}" if settings.built else ""
            reason = f"{late if spent else ''}{output}{built}"
            raise Failed("image", f"cannot pull {settings.cont}: {reason}")
        if pause is not None and not done:
            node.say("pulling", f"{shortened(output, 300)}; again in {pause} s")
            waiting.wait(lambda: False, pause)
    return state


def _try(node: Node, waiting: Waiting, end: float) -> tuple[bool, str]:
    """Pull once; return success, and the engine's last output."""
    progress, ended, said = Progress(), list[bool](), [""]
    engine = with_proxy(node.settings.engine_command, node.settings.proxy)
    argv = [*engine, "pull", pulled_name(node.settings)]

    def hear(line: str) -> None:
        progress.take(line)
        log.write(f"{line}\n".encode())

    def say() -> None:
        if progress.text != said[-1]:
            said.append(progress.text)
            node.say("pulling", progress.text)
        waiting.after("pull", SAY_S, say)

    with node.open_log() as log:
        with failing("engine", argv[0]):
            client = Partner(
                waiting, argv, hear, lambda: ended.append(True), errors=subprocess.STDOUT
            )
        waiting.after("pull", SAY_S, say)
        try:
            over = waiting.wait(
                lambda: ended and client.process.poll() is not None, max(end - time.monotonic(), 0)
            )
        finally:
            waiting.cancel("pull")
            client.input.close()
            end_session(client.process)
            client.leave(waiting)
    output = progress.last or "without a word"
    return (
        over and client.process.returncode == 0,
        output if over else f"it takes too long ({progress.text or output})",
    )
