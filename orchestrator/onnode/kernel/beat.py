"""The loop's beat: nodes detect a dead loop, although a stopped srun or dead slurmd keeps their
input open."""

from __future__ import annotations

from collections.abc import Callable

from .waiting import Waiting

BEAT_S = 60.0
"""How often the loop writes a line to every node."""
LOOK_S = 300.0
"""How often a node checks: late beats do not count."""
SILENCE_S = 1800.0
"""A node leaves after this silence, or `storage_wait_minutes` if longer. The loop is silent only
while stopped, or in a call to a file system, which may take half an hour."""
BEAT = {"do": "beat"}
_LINE = '{"do":"beat"}'


class LoopWatch:
    """Counts checks since the loop's last line: suspended nodes do not check."""

    def __init__(self, storage_wait_s: int) -> None:
        self._limit_s = max(SILENCE_S, float(storage_wait_s))
        self._checks = 0

    def reset(self) -> None:
        """Start again, after a line."""
        self._checks = 0

    def check(self) -> str:
        """Call every LOOK_S. Return why the loop seems dead, or ""."""
        self._checks += 1
        silent_s = self._checks * LOOK_S
        return f"no word from the loop for {silent_s:.0f} s" if silent_s >= self._limit_s else ""


def listen(
    waiting: Waiting,
    storage_wait_s: int,
    receive: Callable[[str], object],
    at_end: Callable[[str], object],
) -> None:
    """Pass each line of standard input to `receive`. Call `at_end` at its end with "", or with why
    the loop seems dead."""
    watch = LoopWatch(storage_wait_s)

    def take(line: str) -> None:
        watch.reset()
        if line != _LINE:
            receive(line)

    def check() -> None:
        if reason := watch.check():
            at_end(reason)
        else:
            waiting.after("loop", LOOK_S, check)

    def end() -> None:
        waiting.cancel("loop")
        at_end("")

    waiting.after("loop", LOOK_S, check)
    waiting.watch_lines(0, take, end)
