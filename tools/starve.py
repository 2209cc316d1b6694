"""Keep a machine busy, and starve random new processes for 20 ms to 3 s each.

usage:  python tools/starve.py [--share S]

One process per processor computes. A share S (0.25) of all processes that start meanwhile, and now
and then an older process, gets almost no processor time: tests that count on timing fail. A signal
ends it; every process then has its time again. Needs root. To run the tests next to it:
`tools/green_runs.py --load "python tools/starve.py"`
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
LOOK_S = 0.002
MOST = 30
PAUSES_S = (0.02, 0.1, 0.3, 1.0, 2.5)
NOBODY = os.sched_param(0)


def processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def is_program(pid: int) -> bool:  # no thread of the kernel
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def schedule(pid: int, policy: int) -> bool:
    try:
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if os.sched_getscheduler(thread) in (os.SCHED_OTHER, os.SCHED_IDLE):
                os.sched_setscheduler(thread, policy, NOBODY)
    except OSError:
        return False
    return True


class Starving:
    def __init__(self, share: float, spared: set[int]) -> None:
        self._share, self._spared, self._seen = share, spared, processes()
        self._since = self._seen
        self._until: dict[int, float] = {}
        self._swept = 0.0

    def look(self, now: float) -> None:
        for pid in [pid for pid, end in self._until.items() if end <= now]:
            schedule(pid, os.SCHED_OTHER)
            del self._until[pid]
        there = processes() - self._spared
        for pid in there - self._seen:
            if random.random() < self._share:
                self._starve(pid, now)
        self._seen = there
        if now > self._swept + 1:
            self._swept = now
            self._sweep(there - self._since, now)

    def _starve(self, pid: int, now: float) -> None:
        if len(self._until) < MOST and is_program(pid) and schedule(pid, os.SCHED_IDLE):
            self._until[pid] = now + random.choice(PAUSES_S) * random.uniform(0.5, 1.2)

    def _sweep(self, there: set[int], now: float) -> None:
        for pid in there - set(self._until):
            with suppress(OSError):
                if os.sched_getscheduler(pid) == os.SCHED_IDLE:  # its parent's
                    self._until[pid] = now + random.random()
        for pid in random.sample(sorted(there), min(2, len(there))):
            self._starve(pid, now)

    def end(self) -> None:
        for pid in self._until:
            schedule(pid, os.SCHED_OTHER)
        self._until.clear()
        for pid in processes() - self._since:
            with suppress(OSError):
                if os.sched_getscheduler(pid) == os.SCHED_IDLE:
                    schedule(pid, os.SCHED_OTHER)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=0.25, metavar="S", help="of new processes")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: sys.exit(128 + given))
    busy = [
        subprocess.Popen([sys.executable, "-c", SPIN, str(processor)])
        for processor in os.sched_getaffinity(0)
    ]
    os.nice(-10)
    starving = Starving(args.share, {os.getpid(), *(process.pid for process in busy)})
    try:
        while True:
            starving.look(time.monotonic())
            time.sleep(LOOK_S)
    finally:
        for process in busy:
            process.kill()
            process.wait()
        starving.end()


if __name__ == "__main__":
    sys.exit(main())
