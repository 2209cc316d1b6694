"""One node's part: passes requests to the processes that measure, and always answers within the limit."""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

from . import rccl_tests
from .address import own_address
from .worker import Answer, Worker


def say(*fields: Any) -> None:
    """Send one line to the agent of this node."""
    print(json.dumps(fields), flush=True)


class Service:
    """What can measure here, and the one measurement that is under way."""

    def __init__(self) -> None:
        self.address = own_address()
        self.listener = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET)
        self.listener.bind(("", 0))
        self.listener.listen(64)
        self.store = socket.socket(self.listener.family)
        self.gpus = 0
        self.workers: dict[str, list[Worker]] = {}
        self.request: Any = {}
        self.waiting: list[Worker] = []
        self.answers: list[Answer] = []
        self.deadline = 0.0
        self.left = b""

    def open(self) -> None:
        """Find out what can measure here, and tell the loop."""
        note = self.open_torch() if importlib.util.find_spec("torch") else ""
        for way in ("tcp", "rccl-tests"):
            self.workers[way] = self.fresh(way)
        self.reserve()
        tests = int(self.gpus > 1 and bool(rccl_tests.find()))
        say("deep-ready", self.gpus, tests, self.address, self.listener.getsockname()[1], self.store_port(), note)

    def open_torch(self) -> str:
        first, limit, wanted = Worker("torch", 0), float(os.environ.get("ORCH_DEEP_START_S", "120")), _gpus_wanted()
        with selectors.DefaultSelector() as selector:
            selector.register(first.output, selectors.EVENT_READ)
            hello: Answer = (
                first.answer() if selector.select(limit) else {"error": f"torch is not ready after {limit:.0f} s"}
            )
        gpus = min(hello.get("gpus", 0), wanted) if hello else 0
        if gpus < 1:
            first.kill()
            return str(hello.get("error", "torch sees no GPU")) if hello else "torch ended at once"
        self.gpus = gpus
        self.workers["torch"] = [first] + [Worker("torch", index) for index in range(1, gpus)]
        return "" if gpus == wanted else f"torch sees {gpus} of {wanted} GPUs"

    def fresh(self, way: str) -> list[Worker]:
        fds = [self.listener.fileno()] if way == "tcp" else []
        return [Worker(way, index, *fds) for index in range(self.gpus if way == "torch" else 1)]

    def reserve(self) -> None:
        """Keep a free port for the next meeting of torch's processes; the others are told which."""
        self.store.close()
        self.store = socket.socket(self.listener.family)
        self.store.bind(("", 0))

    def store_port(self) -> int:
        return int(self.store.getsockname()[1])

    def serve(self) -> None:
        """Answer requests until the input ends."""
        os.set_blocking(0, False)
        while True:
            with selectors.DefaultSelector() as selector:
                selector.register(0, selectors.EVENT_READ)
                for worker in self.waiting:
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                events = selector.select(max(0.0, self.deadline - time.monotonic()) if self.waiting else None)
            for key, _ in events:
                if key.data is None and not self.read_requests():
                    return
                if key.data in self.waiting:
                    self.hear(key.data)
            if self.waiting and time.monotonic() >= self.deadline:
                names = ", ".join(worker.name for worker in self.waiting)
                self.fail(f"no answer within {self.request['limit']} s ({names})")

    def read_requests(self) -> bool:
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

    def begin(self, request: Any) -> None:
        way = request["way"]
        self.request, self.deadline = request, time.monotonic() + request["limit"]
        self.waiting, self.answers = list(self.workers.get(way, ())), []
        if not self.waiting:
            self.fail(f"this node cannot measure with {way}")
        if way == "torch" and request["rank"] == 0:
            self.store.close()
        for worker in self.waiting:
            worker.ask({**request, "gpus": self.gpus})

    def hear(self, worker: Worker) -> None:
        answer = worker.answer()
        if answer is None:
            self.fail(f"{worker.name} ended ({worker.kill()})")
        elif "error" in answer:
            self.fail(answer["error"])
        elif "gpus" not in answer:  # the first word of a worker that replaces another
            self.answers.append(answer)
            self.waiting.remove(worker)
            if not self.waiting:
                best = max(self.answers, key=lambda one: int(one["mbps"]))
                self.tell("ok", best, "")

    def tell(self, state: str, answer: Answer, note: str) -> None:
        if self.request["way"] == "torch":
            self.reserve()
        numbers = [answer.get(name, 0) for name in ("bytes", "microseconds", "mbps", "wrong")]
        say("deep", self.request["id"], state, self.request["way"], *numbers, self.store_port(), note)

    def fail(self, reason: str) -> None:
        """Answer with an error. Workers that may hang in the middle of it are replaced."""
        way, self.waiting = self.request["way"], []
        if way in self.workers:
            for worker in self.workers[way]:
                worker.kill()
            self.workers[way] = self.fresh(way)
        self.tell("error", {}, reason)

    def close(self) -> None:
        for worker in [one for some in self.workers.values() for one in some]:
            worker.kill()


def _gpus_wanted() -> int:
    return int(os.environ.get("ORCH_DEEP_GPUS", "0"))


def main() -> None:
    """Serve until the input ends, or a signal."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    service = Service()
    try:
        service.open()
        service.serve()
    finally:
        service.close()
