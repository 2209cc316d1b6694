"""Evidence of a hanging run: processes, stacks, kernel log, GPUs, records of RCCL and torch. The
file is for people; the loop compares the activity that `gather` returns.

Each part is bounded in size and time. Flight records are pickles: copied, never read.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from shlex import join
from typing import NamedTuple

from ..kernel.jobs import PROCID
from ..kernel.records import write_bytes
from ..kernel.regular import open_regular
from ..kernel.system import entries, first_line, lines
from ..kernel.waiting import Waiting
from .executor import Executor
from .launch import RunRequest
from .node import Node, shortened
from .tools import Smi

MOST_S, _PART_S = 45.0, 10.0
_SAMPLE_S = 1.0
"""Shows whether a thread gives up its processor."""
_FEW_SWITCHES = 100
"""Python's threads hand over at most 200 times a second (its switch interval)."""
_MOST_BYTES, _MOST_TEXT, _MOST_PROCESSES, _MOST_STACKS = 1 << 18, 2 << 20, 256, 16
_NO_STACK = ("State", "Threads", "VmRSS", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
_FRAME = re.compile(r"^ {2,}(\S.*?) \((.*?)(?::(\d+))?\)$", re.MULTILINE)
_RANK = re.compile(rb"\0(?:RANK|%s)=([0-9]{1,6})\0" % PROCID.encode())
_INNER = re.compile(r"(?i)threading|selectors|concurrent/|importlib|runpy|<frozen")
_GPU = "if command -v amd-smi >/dev/null; then amd-smi monitor; else rocm-smi; fi 2>&1"
_KERNEL = "{ %sdmesg 2>&1 || journalctl --dmesg --no-pager --lines=200 2>&1; } | tail -n 200"
_TAILS = 'for one in $1; do [ -f "$one" ] && echo "== $one" && tail -c 20000 "$one"; done'
# A line into its pipe makes torch write its flight record; those files are kept with the run's.
_RECORDS = """
[ -z "$2" ] || for one in "$2"*.pipe; do
  [ ! -p "$one" ] || timeout 2 sh -c 'echo 1 >"$0"' "$one"
done
[ -z "$2" ] || sleep 3
count=0
for one in "$1"*; do
  [ -f "$one" ] && [ "$count" -lt 16 ] || continue
  count=$((count + 1))
  { [ -d "$3" ] || mkdir "$3"; } && head -c 8388608 "$one" >"$3/${one##*/}"
done
echo "files: $count"
"""


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    rss: int
    name: str


def gather(node: Node, waiting: Waiting, executor: Executor, request: RunRequest) -> str:
    """Write the evidence into the attempt's folder; return the processes' activity in brief."""
    return _Evidence(node, waiting, executor).gather(request)


class _Evidence:
    def __init__(self, node: Node, waiting: Waiting, executor: Executor) -> None:
        self._node, self._waiting, self._executor = node, waiting, executor
        self._until = time.monotonic() + MOST_S
        self._text = bytearray()
        self._root = executor.root()
        self._sampled = 0.0

    def gather(self, request: RunRequest) -> str:
        node = self._node
        path = node.layout.hang(request.run, request.attempt, node.name)
        family = self._processes()
        self._part("processes", "".join(f"{line}\n" for line in self._table(family)).encode())
        living = (process for process in family if process.state != "Z")
        programs = sorted(living, key=lambda process: process.rss, reverse=True)
        python = [process for process in programs if "python" in self._command(process.pid)]
        programs = python or programs
        ranks = {process.pid: self._rank(process.pid) for process in programs}
        # Launchers have no rank; without any rank all programs count.
        programs = [process for process in programs if ranks[process.pid]] or programs
        before, self._sampled = self._sample(programs), time.monotonic()
        stacks = {process.pid: self._stack(process) for process in programs[:_MOST_STACKS]}
        self._say(
            "kernel log",
            ["sh", "-c", _KERNEL % (f"{join(node.settings.sudo)} " if node.settings.sudo else "")],
        )
        tools = Smi(node).paths
        here = [tools["amd-smi"], "monitor"] if "amd-smi" in tools else [*tools.values()]
        self._say("GPUs", here or self._executor.command(["sh", "-c", _GPU]))
        self._collectives()
        places = {pid: frames for pid, text in stacks.items() if (frames := _where(text))}
        unknown = [process for process in programs if process.pid not in places]
        places |= self._kernel_places(unknown, before)
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, bytes(self._text), sync=False)
        return shortened(_doing(programs, places, ranks) if self._root else "", 300)

    def _part(self, title: str, content: bytes) -> None:
        room = max(0, min(_MOST_BYTES, _MOST_TEXT - len(self._text)))
        self._text += (
            f"==== {title}\n".encode()
            + content[len(content) - min(room, len(content)) :].rstrip(b"\n")
            + b"\n"
        )

    def _call(self, argv: list[str]) -> tuple[int, bytes]:
        return self._waiting.call(argv, min(_PART_S, max(0.0, self._until - time.monotonic())))

    def _say(self, title: str, argv: list[str]) -> None:
        status, said = self._call(argv)
        self._part(title, said or f"(nothing; exit status {status})".encode())

    # ---- processes

    def _processes(self) -> list[Process]:
        processes = {
            process.pid: process
            for pid in entries(self._node.proc)
            if pid.isdecimal()
            for process in self._read(pid)
        }
        family, root = set[int](), self._root
        for pid in processes if root else ():
            above = [pid]
            while above[-1] in processes and above[-1] != root and len(above) < 64:
                above.append(processes[above[-1]].parent)
            family |= {pid} if above[-1] == root != pid else set()
        return [processes[pid] for pid in sorted(family)[:_MOST_PROCESSES]]

    def _read(self, pid: str) -> Iterator[Process]:
        head, _, rest = first_line(f"{self._node.proc}/{pid}/stat").rpartition(")")
        fields = rest.split()
        if len(fields) > 21 and fields[1].isdecimal():
            yield Process(
                int(pid), int(fields[1]), fields[0], int(fields[21]), head.partition("(")[2]
            )

    def _command(self, pid: int) -> str:
        """The program and its script; other arguments can be secret."""
        program, *arguments = first_line(f"{self._node.proc}/{pid}/cmdline").split("\0")
        scripts = [argument for argument in arguments if argument.endswith((".py", ".sh"))]
        return shortened(" ".join([program, *scripts[:1]]), 200)

    def _rank(self, pid: int) -> str:
        """RANK as torchrun or Slurm set it; "" if unknown."""
        with contextlib.suppress(OSError):
            with open_regular(f"{self._node.proc}/{pid}/environ") as file:
                match = _RANK.search(b"\0" + file.read(_MOST_TEXT) + b"\0")
            return match[1].decode() if match else ""
        return ""

    def _table(self, family: list[Process]) -> Iterator[str]:
        yield "pid ppid state wchan name command"
        for process in family:
            wchan = first_line(f"{self._node.proc}/{process.pid}/wchan") or "-"
            name, command = shortened(process.name, 20), self._command(process.pid)
            yield f"{process.pid} {process.parent} {process.state} {wchan} {name} {command}"

    def _stack(self, process: Process) -> str:
        """Write and return Python's stack (py-spy of host or image), else the kernel's."""
        proc, sudo = f"{self._node.proc}/{process.pid}", list(self._node.settings.sudo)
        status = lines(f"{proc}/status", 8192)
        inner = next(
            (line.split()[-1] for line in status if line.startswith("NSpid:")), str(process.pid)
        )
        for argv in (
            [*sudo, "py-spy", "dump", "--nonblocking", "--pid", str(process.pid)],
            self._executor.command(
                ["py-spy", "dump", "--nonblocking", "--pid", inner], debugger=True
            ),
        ):
            code, said = self._call(argv)
            if code == 0:
                threads = said[said.find(b"Thread ") :]  # the whole command line precedes them
                self._part(f"stack of {process.pid}", threads)
                return threads.decode("utf-8", "replace")
        code, kernel = self._call([*sudo, "cat", f"{proc}/stack", f"{proc}/syscall"])
        counters = [line for line in status if line.partition(":")[0] in _NO_STACK]
        self._part(
            f"stack of {process.pid} (no py-spy: of the kernel)",
            kernel + "\n".join(counters).encode(),
        )
        return ""

    def _sample(self, programs: list[Process]) -> dict[int, int]:
        """Return how often each runnable program's main thread has given up its processor."""
        switches = dict[int, int]()
        for process in programs:
            status = lines(f"{self._node.proc}/{process.pid}/task/{process.pid}/status", 8192)
            about = dict(line.partition(":\t")[::2] for line in status)
            given_up = about.get("voluntary_ctxt_switches", "")
            if about.get("State", "").startswith("R") and given_up.isdecimal():
                switches[process.pid] = int(given_up)
        return switches

    def _kernel_places(self, programs: list[Process], before: Mapping[int, int]) -> dict[int, str]:
        """Places of main threads as the kernel shows them: user code since the sample `before`, or
        the function in which they wait."""
        if not programs:
            return {}
        self._waiting.wait(lambda: False, max(0.0, self._sampled + _SAMPLE_S - time.monotonic()))
        now = self._sample(programs)
        places = dict[int, str]()
        for pid in (process.pid for process in programs):
            wchan = first_line(f"{self._node.proc}/{pid}/wchan")
            # On a busy machine a loop gets little of a processor, but hardly gives it up.
            if pid in now and pid in before and now[pid] - before[pid] < _FEW_SWITCHES:
                places[pid] = f"user code (on a processor{self._gpu_activity(pid)})"
            elif wchan not in ("", "0"):
                places[pid] = f"{shortened(wchan, 60)} (kernel)"
        return places

    def _gpu_activity(self, pid: int) -> str:
        """As KFD reports it. A looping rank leaves its GPU idle while its peers spin in a
        collective."""
        stats = f"{self._node.sys}/class/kfd/kfd/proc/{pid}"
        units = [
            first_line(f"{stats}/{gpu}/cu_occupancy")
            for gpu in entries(stats)
            if gpu.startswith("stats_")
        ]
        used = [int(text) for text in units if text.isdecimal()]
        return f", GPU {'busy' if any(used) else 'idle'}" if used else ""

    # ---- collectives

    def _collectives(self) -> None:
        """Keep the end of RCCL's log, and torch's flight records, if on."""
        with contextlib.suppress(OSError):
            values = self._node.run_variables()
            if pattern := values.get("NCCL_DEBUG_FILE", ""):
                names = re.sub("%[a-z]", "*", pattern)
                self._say("RCCL", self._executor.command(["sh", "-c", _TAILS, "sh", names]))
            if any(
                values.get(name, "0") not in ("", "0")
                for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
            ):
                stem = values.get("TORCH_FR_DUMP_TEMP_FILE") or values.get(
                    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
                )
                arguments = [
                    stem or "/tmp/nccl_trace_rank_",
                    values.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", ""),
                ]
                results = "/results" if self._node.settings.engine != "none" else self._node.results
                argv = ["sh", "-c", _RECORDS, "sh", *arguments, f"{results}/flight_recorder"]
                self._say("flight records (files/)", self._executor.command(argv))


def _doing(programs: list[Process], places: Mapping[int, str], ranks: Mapping[int, str]) -> str:
    """Equal activity gives equal texts; "" if unknown."""
    if not programs:
        return "gone: none of its processes is left"
    for state, begin, end in (
        ("T", "stopped", "does not run (state T)"),
        ("D", "blocked", "is in the kernel (D)"),
    ):
        held = [process.pid for process in programs if process.state.upper() == state]
        if held:
            rank = next(filter(None, (ranks[pid] for pid in held)), "")
            return f"{begin}: {f'rank {rank}' if rank else 'a process'} {end}"
    by_place: dict[str, list[str]] = {}
    for pid, place in places.items():
        by_place.setdefault(place, []).append(ranks[pid])
    if len(by_place) < 2:
        return f"in {next(iter(by_place))}" if by_place else ""
    # The fewest first: the others may wait for them.
    ordered = sorted(by_place.items(), key=lambda place: (len(place[1]), place[0]))
    return "; ".join(f"{_ranks(some)} in {place}" for place, some in ordered[:3])


def _ranks(ranks: list[str]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}" if ranks[0] else "a process"
    return f"{len(ranks)} ranks"


def _where(text: str) -> str:
    """The main thread's innermost frames, without line numbers."""
    main = text.partition('"MainThread"')[2].partition("\nThread ")[0]
    frames = [
        f"{name} ({os.path.basename(file)})"
        for name, file, _ in _FRAME.findall(main)
        if not _INNER.search(file)
    ]
    return " < ".join(frames[:2])
