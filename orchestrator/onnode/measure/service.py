"""A node's part: passes requests to the measuring processes; answers within the limit."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from queue import Queue
from typing import IO, Any, Callable

from . import rccl

SIOCGIFADDR = 0x8915
Request = Any  # that of `measure`, with "gpus"
Answer = Any  # {"bytes", "microseconds", "mbps", "wrong"}, or {"error"}


def own_address() -> str:
    """Return the address on NCCL_SOCKET_IFNAME, else on the route to ORCH_DEEP_PEER (another node),
    else of this node's name."""
    for name in _interfaces(os.environ.get("NCCL_SOCKET_IFNAME", "")):
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = fcntl.ioctl(
                asked.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode())
            )
            return socket.inet_ntoa(answer[20:24])
    for target in filter(None, (os.environ.get("ORCH_DEEP_PEER"), socket.gethostname())):
        with suppress(OSError):
            family, kind, protocol, _, place = socket.getaddrinfo(
                target, 9, type=socket.SOCK_DGRAM
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(place)  # nothing is sent
                return str(probe.getsockname()[0])
    return "127.0.0.1"


def _interfaces(wanted: str) -> Iterator[str]:
    """`wanted`: a list of prefixes; `=`: of whole names; `^`: of exceptions."""
    bare = wanted.lstrip("^=")
    marks, prefixes = wanted[: len(wanted) - len(bare)], [word for word in bare.split(",") if word]
    names = [name for _, name in socket.if_nameindex()]
    taken = [
        name
        for word in prefixes
        for name in names
        if (name == word if "=" in marks else name.startswith(word))
    ]
    yield from (
        (name for name in names if name != "lo" and name not in taken) if "^" in marks else taken
    )


class Worker:
    """A measuring process, which ends with its input: requests and answers are lines of JSON."""

    def __init__(self, way: str, index: int) -> None:
        read, write = os.pipe()
        argv = [
            sys.executable,
            os.path.dirname(os.path.abspath(__file__)),
            way,
            str(index),
            str(write),
        ]
        # Libraries print anything on standard output: answers have a pipe.
        self.process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            pass_fds=(write,),
            start_new_session=True,
        )
        os.close(write)
        self.input: IO[bytes] = self.process.stdin  # type: ignore[assignment]
        self.name = f"process {index}"
        # Without a buffer: select would not see data already read ahead.
        self.output = os.fdopen(read, "rb", 0)

    def ask(self, request: Request) -> None:
        with suppress(OSError):  # it has ended; its output ends, too
            self.input.write(json.dumps(request).encode() + b"\n")

    def answer(self) -> Answer:
        """None after its end."""
        line = self.output.readline()
        return json.loads(line.decode()) if line.endswith(b"\n") else None

    def kill(self) -> str:
        """Kill it and its children; return how it ended."""
        if self.process.returncode is None:
            with suppress(
                ProcessLookupError
            ):  # a signal to the whole job ended it before it had its session
                os.killpg(self.process.pid, signal.SIGKILL)
        self.input.close()
        self.output.close()
        status = self.process.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"


def work(way: str, index: str, answers: str) -> None:
    """The body of such a process: measure on requests until the input ends. Exceptions are
    answers."""
    requests: Queue[str] = Queue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        # The measuring process may hang in a library that no signal reaches.
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    with os.fdopen(int(answers), "w", 1) as output:
        measure: Callable[[Request], Answer] = rccl.measure_alone
        if way == "torch":
            torch, hello = rccl.load_torch()
            measure = partial(rccl.measure, torch, int(index))
            if index == "0":
                output.write(json.dumps(hello) + "\n")
        while True:
            try:
                answer = measure(json.loads(requests.get()))
            except (
                Exception
            ) as error:  # whatever a library raises is reported, and this process replaced
                answer = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
            output.write(json.dumps(answer) + "\n")


class Service:
    """The ways to measure here, and the current measurement."""

    def __init__(self) -> None:
        self.address = own_address()
        self.family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self.store = socket.socket(self.family)
        self.gpus = 0
        self.workers: dict[str, list[Worker]] = {}
        self.request: Any = {}
        self.waiting: list[Worker] = []
        self.answers: list[Answer] = []
        self.deadline = 0.0
        self.left = b""

    def open(self) -> None:
        """Report the ways to measure here."""
        has_torch = importlib.util.find_spec("torch") is not None
        note = self.open_torch() if has_torch else "no torch in the image"
        self.workers["rccl-tests"] = self.fresh("rccl-tests")
        tests = int(self.gpus > 1 and bool(rccl.find()))
        hello = ["deep-ready", self.gpus, tests, self.address, self.reserve(), note]
        print(json.dumps(hello), flush=True)

    def open_torch(self) -> str:
        """Start torch's processes, one per GPU; return why there are fewer than wanted."""
        first, limit = Worker("torch", 0), float(os.environ.get("ORCH_DEEP_START_S", "120"))
        wanted = int(os.environ.get("ORCH_DEEP_GPUS", "0"))
        with selectors.DefaultSelector() as selector:
            selector.register(first.output, selectors.EVENT_READ)
            in_time = selector.select(limit)
        hello: Answer = (
            first.answer() if in_time else {"error": f"torch is not ready after {limit:.0f} s"}
        )
        hello = hello or {"error": "torch ended at once"}
        self.gpus = min(hello.get("gpus", 0), wanted)
        if not self.gpus:
            first.kill()
            return str(hello.get("error", "torch sees no GPU"))
        self.workers["torch"] = [first] + [Worker("torch", index) for index in range(1, self.gpus)]
        return "" if self.gpus == wanted else f"torch sees {self.gpus} of {wanted} GPUs"

    def fresh(self, way: str) -> list[Worker]:
        return [Worker(way, index) for index in range(self.gpus if way == "torch" else 1)]

    def reserve(self) -> int:
        """Keep a free port for torch's next meeting; return it for the others."""
        self.store.close()
        self.store = socket.socket(self.family)
        self.store.bind(("", 0))
        return int(self.store.getsockname()[1])

    def serve(self) -> None:
        """Answer requests until the input ends."""
        os.set_blocking(0, False)
        while True:
            with selectors.DefaultSelector() as selector:
                selector.register(0, selectors.EVENT_READ)
                for worker in self.waiting:
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                events = selector.select(
                    max(0.0, self.deadline - time.monotonic()) if self.waiting else None
                )
            for key, _ in events:
                if key.data is None and not self.read_requests():
                    return
                if key.data in self.waiting:
                    self.hear(key.data)
            if self.waiting and time.monotonic() >= self.deadline:
                names = ", ".join(worker.name for worker in self.waiting)
                self.fail(f"no answer within {self.request['limit']} s ({names})")

    def read_requests(self) -> bool:
        """Return whether there can be more."""
        try:
            piece = os.read(0, 65536)
        except BlockingIOError:
            return True
        *lines, self.left = (self.left + piece).split(b"\n")
        for line in lines:
            request = json.loads(line.decode())
            if request["do"] == "measure":
                self.begin(request)
            elif self.waiting and request["id"] == self.request["id"]:
                self.fail("given up, because another node failed")
        return bool(piece)

    def begin(self, request: Request) -> None:
        way = request["way"]
        self.request, self.deadline = request, time.monotonic() + request["limit"]
        self.waiting, self.answers = list(self.workers.get(way, ())), []
        if not self.waiting:
            self.fail(f"this node cannot measure with {way}")
        elif way == "torch" and request["rank"] == 0:
            self.store.close()
        for worker in self.waiting:
            worker.ask({**request, "gpus": self.gpus})

    def hear(self, worker: Worker) -> None:
        answer = worker.answer()
        if answer is None:
            self.fail(f"{worker.name} ended ({worker.kill()})")
        elif "error" in answer:
            self.fail(answer["error"])
        elif "gpus" not in answer:  # the first answer of a worker that replaces another
            self.answers.append(answer)
            self.waiting.remove(worker)
            if not self.waiting:
                self.tell("ok", max(self.answers, key=lambda answer: int(answer["mbps"])), "")

    def tell(self, state: str, answer: Answer, note: str) -> None:
        fields = ["deep", self.request["id"], state, self.request["way"]]
        fields += [answer.get(name, 0) for name in ("bytes", "microseconds", "mbps", "wrong")]
        print(json.dumps([*fields, self.reserve(), note]), flush=True)

    def fail(self, reason: str) -> None:
        """Answer with an error. Workers, which may hang, are replaced."""
        way, self.waiting = self.request["way"], []
        for worker in self.workers.get(way, ()):
            worker.kill()
        if way in self.workers:
            self.workers[way] = self.fresh(way)
        self.tell("error", {}, reason)


def _ended(*_: object) -> None:
    raise SystemExit(143)


def main() -> None:
    """Serve until the input ends, or a signal."""
    signal.signal(signal.SIGTERM, _ended)
    service = Service()
    try:
        service.open()
        service.serve()
    finally:
        for worker in [worker for some in service.workers.values() for worker in some]:
            worker.kill()
