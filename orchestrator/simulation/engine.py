"""Virtual time: a heap of events, and processes that can be killed between two steps."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

Action = Callable[[], object]
MEETS_S = 0.02
"""The longest time between two steps while several strands are alive."""
NEVER = float("inf")
START_MS = 1_790_000_000_000
"""Any date, but always the same."""


class Killed(BaseException):
    """The running process is dead. Not an Exception: only `finally` notices it."""


class Stuck(Exception):
    """Nothing happens any more, or no end is in sight."""


@dataclass(eq=False, slots=True)
class Timer:
    """A future event. `action` is None once cancelled, or over."""

    at: float
    action: Action | None
    process: SimProcess | None

    def cancel(self) -> None:
        self.action = None


@dataclass(eq=False, slots=True)
class SimProcess:
    """A process on a host. Its code runs inside its own events, one at a time.

    `steps` counts its calls to the world. It dies before step `dies_at`, and pauses for `stops_s`
    before step `stops_at`, or soon after. Its death calls `deaths`.
    """

    engine: Engine
    name: str
    host: str
    pid: int
    alive: bool = True
    stopped: bool = False
    """By SIGSTOP: its events wait."""
    busy: bool = False
    steps: int = 0
    dies_at: float = NEVER
    stops_at: float = NEVER
    stops_s: float = 0.0
    confirmed_at: float = -1.0
    """Its last read of a lock. It never pauses at that moment: nothing could keep its next write
    from being late."""
    strand: Strand | None = None
    """None: it uses the stack of its event."""
    inbox: deque[Action] = field(default_factory=deque)
    deaths: list[Action] = field(default_factory=list)

    def step(self) -> None:
        """Count a call to the world. Raises Killed if dead."""
        self.steps += 1
        if self.alive and self.steps >= self.dies_at:
            self.kill()
        if not self.alive:
            raise Killed(self.name)
        if self.strand is not None and self.strand.runs and self.engine.strands > 1:
            self.strand.wait(self.engine.between(0.0, MEETS_S))
            if not self.alive:
                raise Killed(self.name)
        if self.steps >= self.stops_at and self.confirmed_at < self.engine.now:
            self.stops_at = NEVER
            self.engine.wakes.append((self, self.engine.now + self.stops_s))
            self.engine.pause(self, self.stops_s)

    def die_at(self, step: float) -> None:
        """Before this step."""
        self.dies_at = step

    def stop_at(self, step: float, seconds: float) -> None:
        """Before this step, or soon after."""
        self.stops_at, self.stops_s = step, seconds

    def confirm(self) -> None:
        """Note a read of a lock."""
        self.confirmed_at = self.engine.now

    def exit(self) -> None:
        """Without `deaths`."""
        self.alive = False

    def kill(self) -> None:
        """As SIGKILL."""
        if self.alive:
            self.alive = False
            self.inbox.clear()
            for action in self.deaths:
                self.engine.after(0.0, action)

    def after(self, seconds: float, action: Action) -> Timer:
        """Schedule `action`, void after its death."""
        return self.engine.after(seconds, action, self)

    def stop(self) -> None:
        """As SIGSTOP."""
        self.stopped = True

    def resume(self) -> None:
        """As SIGCONT."""
        self.stopped = False
        self.engine.wakes.append((self, self.engine.now))
        self.engine.deliver(self)


class Strand:
    """Code of a process on its own stack, so commands can interleave at any step.

    One thread runs at a time, in the order of the heap, which a seed decides. While several strands
    are alive, each waits a moment before each step.
    """

    def __init__(self, process: SimProcess, action: Action) -> None:
        self._process, self._action = process, action
        self._go, self._back = threading.Lock(), threading.Lock()  # cheaper than semaphores
        self._go.acquire()
        self._back.acquire()
        self._error: BaseException | None = None
        self.over = self.runs = False
        """`runs`: now. A beat of its process uses its event's stack."""
        process.strand = self
        process.deaths.append(self.resume)
        process.engine.strands += 1
        self._thread = threading.Thread(target=self._run, name=process.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._action()
        except Killed:
            pass
        except BaseException as error:  # raised again in resume()
            self._error = error
        self.over = True
        self._process.engine.strands -= 1
        self._back.release()

    def resume(self) -> None:
        """Run it until it waits or is over. Raises its exceptions."""
        if self.over:
            return
        self.runs = True
        self._go.release()
        self._back.acquire()
        self.runs = False
        if self.over:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def wait(self, seconds: float) -> None:
        """Let others run; for its own code alone."""
        self._process.after(seconds, self.resume)
        self._back.release()
        self._go.acquire()

    def end(self) -> None:
        """Unwind it, as if killed."""
        self._process.alive = False
        while not self.over:
            self.resume()


class Engine:
    """The clock (`now`: seconds from 0) and the heap. All chance comes from `random`."""

    def __init__(self, seed: int, start_ms: int = START_MS) -> None:
        self.seed, self.start_ms = seed, start_ms
        self.now = 0.0
        self.random = random.Random(seed)
        self.turns = 0
        self.processes: list[SimProcess] = []
        self.strands = 0
        self.wakes: list[tuple[SimProcess, float]] = []
        """Ends of pauses (virtual seconds)."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._pids = 1000

    @property
    def wall_ms(self) -> int:
        return self.start_ms + int(self.now * 1000)

    def after(self, seconds: float, action: Action, process: SimProcess | None = None) -> Timer:
        self._count += 1
        at = self.now + seconds if seconds > 0.0 else self.now
        timer = Timer(at, action, process)
        heappush(self._heap, (at, self._count, timer))
        return timer

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def process(self, name: str, host: str) -> SimProcess:
        self._pids += 1
        self.processes = [process for process in self.processes if process.alive]
        self.processes.append(SimProcess(self, name, host, self._pids))
        return self.processes[-1]

    def perform(self, process: SimProcess | None, action: Action) -> None:
        """Run `action`; later if `process` is busy or stopped, never if dead."""
        if process is None:
            action()
        elif process.busy or process.stopped or process.inbox:  # what came first is read first
            process.inbox.append(action)
        else:
            self._perform(process, action)

    def _perform(self, process: SimProcess, action: Action) -> None:
        if not process.alive:
            return
        process.busy = True
        try:
            action()
        except Killed:
            if process.alive:  # another process further up was killed
                raise
        finally:
            process.busy = False
        if process.inbox:
            self.after(0.0, lambda: self.deliver(process))

    def deliver(self, process: SimProcess) -> None:
        while process.inbox and process.alive and not process.busy and not process.stopped:
            self._perform(process, process.inbox.popleft())

    def pause(self, process: SimProcess, seconds: float) -> None:
        """Pause `process`, whose code is running. Raises Killed."""
        if process.strand is not None and process.strand.runs:
            process.strand.wait(seconds)
            process.step()
            return
        until = self.now + max(0.0, seconds)
        while process.alive and self.turn(until):
            pass
        if process.alive:
            self.now = max(self.now, until)
        process.step()

    def skip(self, seconds: float) -> None:
        """Let time pass without events: everything due meanwhile is late.

        For short delays: in `pause`, others run on top of the process's stack, and it continues
        after the last. Two waiting processes would not meet as they really do.
        """
        self.now += max(0.0, seconds)

    def turn(self, until: float = NEVER) -> bool:
        """Run the next event due by `until`. Return whether it ran."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
        if not heap or heap[0][0] > until:
            return False
        timer = heappop(heap)[2]
        self.now, self.turns = max(self.now, timer.at), self.turns + 1
        action, timer.action = timer.action, None
        if action is not None:
            self.perform(timer.process, action)
        return True

    def run(
        self, done: Callable[[], bool], limit_s: float = NEVER, most_turns: int = 10_000_000
    ) -> None:
        """Run events until `done`. Raises Stuck without events, after `limit_s` or `most_turns`."""
        first = self.turns
        while not done():
            if not self.turn(limit_s):
                raise Stuck(f"nothing happens any more at {self.now:.0f} s")
            if self.turns - first > most_turns:
                raise Stuck(f"no end after {most_turns} events, at {self.now:.0f} s")
