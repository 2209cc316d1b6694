"""The loop's beat: how a node detects a dead loop while its input stays open.

An srun that is stopped, or a batch host whose slurmd is dead, keeps the input of its nodes open
forever.
"""

from __future__ import annotations

from collections.abc import Callable

from .waiting import Waiting

BEAT_S = 60.0
"""How often the loop writes a line to every node, even while it waits itself."""
LOOK_S = 300.0
"""How often a node checks for lines: every five beats, so a few late ones do not count."""
SILENCE_S = 1800.0
"""A node leaves after this silence, or after the site's `storage_wait_minutes` if that is
longer. The loop beats in all of its own waits. It is silent only while it is stopped or a call
to a file system does not return, and a file server may take half an hour to come back."""
BEAT = {"do": "beat"}
_LINE = '{"do":"beat"}'


class LoopWatch:
    """Counts the checks of a node since the last line from the loop.

    It counts checks, not time: a suspended node, as all nodes of a suspended job, does not check.
    """

    def __init__(self, storage_wait_s: int) -> None:
        self._limit_s = max(SILENCE_S, float(storage_wait_s))
        self._checks = 0

    def reset(self) -> None:
        """Start counting again: the loop has sent a line."""
        self._checks = 0

    def check(self) -> str:
        """Call every LOOK_S. Return why the loop counts as dead, or ""."""
        self._checks += 1
        silent_s = self._checks * LOOK_S
        return f"no word from the loop for {silent_s:.0f} s" if silent_s >= self._limit_s else ""


def listen(
    waiting: Waiting,
    storage_wait_s: int,
    receive: Callable[[str], object],
    at_end: Callable[[str], object],
) -> None:
    """Call `receive` with each line of the loop on standard input.

    Call `at_end` with "" at the end of the input, and with the reason if the loop counts as dead.
    """
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
