"""Processes on nodes, with real ones on this host: any bytes, floods, ends, nodes that do not listen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from until import LIMIT_S, bounded, until

from orchestrator.onnode.kernel.waiting import MAX_LINE, UNTIL_WOKEN, Flow, together
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.loop.allocation import LocalAllocation
from orchestrator.onnode.loop.host import BatchHost, NodeStep, Reactor, StepProcesses


@dataclass
class Nodes:
    """Steps of one test, and what came from them."""

    world: BatchHost
    reactor: Reactor
    lines: list[bytes] = field(default_factory=list)
    complaints: list[bytes] = field(default_factory=list)
    complained: set[str] = field(default_factory=set)
    senders: set[str] = field(default_factory=set)
    steps: list[NodeStep] = field(default_factory=list)

    def start(self, program: str, nodes: int = 1) -> NodeStep:
        """Start a Python program on each node; `name` is the node's name there."""
        names = [f"n{one}" for one in range(nodes)]
        code = f"import os, sys, time, signal\nname = os.environ['ORCH_NODE']\n{program}"
        argv = [sys.executable, "-I", "-S", "-c", code]
        commands, environment = (
            LocalAllocation({}, nodes, THIS).commands(names, argv),
            {"PATH": os.environ["PATH"]},
        )
        processes = StepProcesses(names, commands, environment, self._take, self._complain)
        step = NodeStep(self.reactor, processes)
        self.steps.append(step)
        return step

    def _take(self, node: str, line: bytes) -> None:
        self.lines.append(line)
        self.senders.add(node)

    def _complain(self, node: str, line: bytes) -> None:
        self.complaints.append(line)
        self.complained.add(node)

    def see(self, done: Callable[[], object]) -> None:
        def seen() -> bool:
            for _ in range(100):
                if done():
                    return True
                self.reactor.pump(time.monotonic() + 1)
            return False

        until(seen)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
    before, wakeup = (
        {number: signal.getsignal(number) for number in numbers},
        signal.set_wakeup_fd(-1),
    )
    world = BatchHost()
    made = Nodes(world, world.reactor(lambda: None))
    yield made
    for step in made.steps:
        step.kill()
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_lines_come_and_go(nodes: Nodes) -> None:
    step = nodes.start(
        "for line in sys.stdin: print(name, line.strip(), flush=True)\nprint('left', flush=True)", 3
    )
    step.send({"do": "ping", "n": 1})
    nodes.see(lambda: len(nodes.lines) == 3)
    assert sorted(nodes.lines) == [b'n%d {"do":"ping","n":1}' % one for one in range(3)]
    assert step.alive and step.running and step.ended_nodes() == []
    step.end_input()
    nodes.see(lambda: not step.alive)
    assert nodes.lines[3:] == [b"left"] * 3 and step.ended_nodes() == ["n0", "n1", "n2"]
    step.send({"do": "ping"})
    step.signal(signal.SIGTERM)


def test_any_bytes(nodes: Nodes) -> None:
    raw = b"\0\xff\xfe\x1b[2J \t\n\n\r\n" + bytes(range(256)) + b"\nno end"
    step = nodes.start(f"os.write(1, {raw!r})\nos.write(2, {raw!r})")
    nodes.see(lambda: not step.alive)
    assert nodes.lines == nodes.complaints == raw.split(b"\n")[:-1]


def test_an_error_is_that_of_its_node(nodes: Nodes) -> None:
    """Each node has a channel of its own: none can complain in the name of the step, or of another node."""
    step = nodes.start(
        "print('srun: error: n0: task 0: Killed', file=sys.stderr) if name == 'n1' else None", 2
    )
    nodes.see(lambda: not step.alive)
    assert nodes.complaints == [b"srun: error: n0: task 0: Killed"] and nodes.complained == {"n1"}


def test_a_line_without_an_end_is_not_kept_whole(nodes: Nodes) -> None:
    step = nodes.start("for _ in range(300): os.write(1, b'x' * 65536)\nos.write(1, b'\\nnext\\n')")
    nodes.see(lambda: not step.alive)
    assert [len(line) <= 2 * MAX_LINE for line in nodes.lines] == [True, True] and nodes.lines[
        1
    ] == b"next"


def test_a_node_that_floods_does_not_keep_the_others_from_being_heard(nodes: Nodes) -> None:
    step = nodes.start(
        "while name == 'n0': os.write(1, b'flood\\n' * 1000)\nprint('here', flush=True)\ntime.sleep(1000)",
        2,
    )
    nodes.see(lambda: b"here" in nodes.lines)
    step.kill()
    assert not step.alive


def test_the_last_words_come_before_the_end_is_known(nodes: Nodes) -> None:
    step = nodes.start("os.write(1, b'left\\n' * 5000)\nos.kill(os.getpid(), signal.SIGKILL)", 4)

    def all_said() -> bool:
        ended = step.ended_nodes()
        assert len(nodes.lines) >= 5000 * len(ended)
        return len(ended) == 4

    nodes.see(all_said)
    assert nodes.lines == [b"left"] * 20_000


def test_a_dead_node_is_told_from_its_neighbours(nodes: Nodes) -> None:
    step = nodes.start("if name == 'n1': os.kill(os.getpid(), signal.SIGKILL)\nsys.stdin.read()", 3)
    nodes.see(lambda: step.ended_nodes() == ["n1"])
    step.send({"do": "go"})
    assert step.alive


def test_a_node_that_does_not_listen_does_not_stop_the_loop(nodes: Nodes) -> None:
    step = nodes.start(
        "print('here', flush=True)\nif name == 'n0': os.kill(os.getpid(), signal.SIGSTOP)\nsys.stdin.read()",
        2,
    )
    nodes.see(lambda: nodes.lines == [b"here"] * 2)
    for number in range(500):
        step.send({"do": "ping", "n": number, "nodes": ["n"] * 100})
    step.end_input()
    nodes.see(lambda: step.ended_nodes() == ["n1"])
    assert step.running
    step.kill()
    assert not step.running and not step.alive


def test_what_holds_the_output_open_does_not_outlive_the_step(nodes: Nodes) -> None:
    step = nodes.start("if os.fork() == 0: time.sleep(1000)\nprint('here', flush=True)")
    nodes.see(lambda: nodes.lines == [b"here"] and not step.running)
    assert step.alive, "something may still come"
    # What belongs to a node's session ends with it by other means; here its number is known.
    step.kill()
    assert not step.alive
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                ours = os.getsid(int(entry.name)) == step.processes[0].pid
            except ProcessLookupError:
                continue
            if ours:
                os.kill(int(entry.name), signal.SIGKILL)


RECYCLED = """
import os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from orchestrator.onnode.loop.host import NodeStep, Reactor, StepProcesses
from orchestrator.onnode.loop.allocation import LocalAllocation
from orchestrator.onnode.kernel.world import THIS
commands = LocalAllocation({}, 1, THIS).commands(["n0"], ["sh", "-c", "exit 0"])
processes = StepProcesses(["n0"], commands, {"PATH": os.environ["PATH"]}, print, print)
step = NodeStep(Reactor(), processes)
ended = step.processes[0].pid
while step.running:
    time.sleep(0.01)
other = None
while other is None or other.pid != ended:  # what the kernel does when it has gone round
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(ended - 1))
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
step.kill()
time.sleep(0.1)
sys.exit(0 if other.poll() is None else 7)
"""


@pytest.mark.skipif(
    os.getuid() != 0 or not os.path.exists("/proc/sys/kernel/ns_last_pid"),
    reason="only root can say which pid is next",
)
def test_a_pid_that_is_anothers_by_now_is_not_killed() -> None:
    """Hours after a node's process has ended its number can be somebody else's. In a namespace of its own it is at once."""
    top = str(Path(__file__).parents[2])
    argv = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        "-c",
        RECYCLED,
        top,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr


def test_signals_are_taken_in_by_the_flow(nodes: Nodes) -> None:
    told: list[set[int]] = []
    nodes.reactor._signalled = lambda: told.append(set(nodes.reactor.signals))

    def flow() -> Iterator[float]:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert told == [], "nothing happens inside of a handler"
        while not told:
            yield time.monotonic() + LIMIT_S
        return "done"  # type: ignore[return-value]

    assert nodes.world.run(flow()) == "done"  # type: ignore[arg-type]
    assert told[-1] == {signal.SIGUSR1, signal.SIGTERM}


def test_a_flow_is_resumed_at_its_time(nodes: Nodes) -> None:
    began = time.monotonic()

    def flow() -> Iterator[float]:
        yield began + 0.1
        yield began - 10

    assert nodes.world.run(flow()) is None  # type: ignore[arg-type]
    assert time.monotonic() >= began + 0.1


def test_flows_go_on_side_by_side(nodes: Nodes) -> None:
    order = list[str]()

    def flow(name: str, pauses: int, error: Exception | None = None) -> Iterator[float]:
        for _ in range(pauses):
            yield time.monotonic() + 0.05
        order.append(name)
        if error is not None:
            raise error
        return name  # type: ignore[return-value]

    def three(error: Exception | None = None) -> object:
        return nodes.world.run(together([flow("a", 9), flow("b", 0, error), flow("c", 4)]))  # type: ignore[list-item]

    assert three() == ["a", "b", "c"] and order == ["b", "c", "a"]
    with pytest.raises(LookupError):
        three(LookupError("what the first one raised"))
    assert order[3:] == ["b", "c", "a"], "the others have come to their end"
    assert nodes.world.run(together([])) == []


def test_what_waits_for_another_flow_goes_on_as_soon_as_that_says_so(nodes: Nodes) -> None:
    done: list[str] = []

    def waits(name: str, other: str) -> Flow:
        while other not in done:
            yield UNTIL_WOKEN
        done.append(name)
        nodes.reactor.wake()

    def begins() -> Flow:
        yield time.monotonic() + 0.1
        done.append("first")
        nodes.reactor.wake()

    with bounded():  # a flow that nobody resumes waits for an hour
        nodes.world.run(together([waits("third", "second"), waits("second", "first"), begins()]))
    assert done == ["first", "second", "third"]


@pytest.mark.parametrize(
    "job_id", ["", "local", "local-1", "local-1-1", "other-1-1", "local-" + "9" * 50]
)
def test_of_a_job_that_is_none_of_slurms_slurm_is_not_asked(job_id: str) -> None:
    assert LocalAllocation({}, 1, THIS).sees(job_id) is None
