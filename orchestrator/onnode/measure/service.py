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
        tests, port = int(self.gpus > 1 and bool(rccl_tests.find())), self.listener.getsockname()[1]
        print(json.dumps(["deep-ready", self.gpus, tests, self.address, port, self.reserve(), note]), flush=True)

    def open_torch(self) -> str:
        """Start torch's processes for `gpus` GPUs; return why there are fewer than wanted."""
        first, limit = Worker("torch", 0), float(os.environ.get("ORCH_DEEP_START_S", "120"))
        wanted = int(os.environ.get("ORCH_DEEP_GPUS", "0"))
        with selectors.DefaultSelector() as selector:
            selector.register(first.output, selectors.EVENT_READ)
            late = {"error": f"torch is not ready after {limit:.0f} s"}
            hello: Answer = first.answer() if selector.select(limit) else late
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

    def reserve(self) -> int:
        """Keep a free port for the next meeting of torch's processes, and return it; the others are told."""
        self.store.close()
        self.store = socket.socket(self.listener.family)
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
                self.tell("ok", max(self.answers, key=lambda one: int(one["mbps"])), "")

    def tell(self, state: str, answer: Answer, note: str) -> None:
        told = ["deep", self.request["id"], state, self.request["way"]]
        told += [answer.get(name, 0) for name in ("bytes", "microseconds", "mbps", "wrong")]
        print(json.dumps([*told, self.reserve(), note]), flush=True)

    def fail(self, reason: str) -> None:
        """Answer with an error. Workers that may hang in the middle of it are replaced."""
        way, self.waiting = self.request["way"], []
        for worker in self.workers.get(way, ()):
            worker.kill()
        if way in self.workers:
            self.workers[way] = self.fresh(way)
        self.tell("error", {}, reason)


def main() -> None:
    """Serve until the input ends, or a signal."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    service = Service()
    try:
        service.open()
        service.serve()
    finally:
        for worker in [one for some in service.workers.values() for one in some]:
            worker.kill()
