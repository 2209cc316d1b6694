"""Measures the bus bandwidth of an all-reduce with other nodes. Runs in the workload's container, started by deep_node.sh.

Python 3.7 or newer, standard library only: it has to run in images of others. Requests come as lines on standard input, whose
end ends this process and all that it started:

    measure ID WAY LIMIT_S BYTES GROUP...    GROUP is NODE=ADDRESS:PORT,... in rank order; this node answers if it is in one
    cancel ID NODE...                        these nodes give it up: one of their group has failed

Answers go to standard output, as lib/node.sh writes its own: WORD, rank, node, detail; fields of the detail end with \\x1f.

    deep-ready   GPUS RCCL_TESTS ADDRESS TCP_PORT TORCH_PORT NOTE
    deep         ID STATE WAY BYTES MICROSECONDS MBPS WRONG TORCH_PORT NOTE      STATE: ok or error

WAY is torch (RCCL, one process per GPU), tcp (a ring over plain sockets), or rccl-tests (one node by itself). The processes that
measure stay between requests, because importing torch takes longer than measuring; after a failure they are new ones.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

import rccl_tests
from all_reduce_address import own_address

HERE = os.path.dirname(os.path.abspath(__file__))
NODE = os.environ.get("ORCH_DEEP_NODE", "")
RANK = os.environ.get("ORCH_DEEP_RANK", "0")
START_LIMIT_S = float(os.environ.get("ORCH_DEEP_START_S", "120"))


def say(word, *fields):
    """Send one line to the loop; a line is at most about 900 bytes, so that lines of different nodes cannot mix."""
    text = "\x1f".join(str(field).replace("\n", " ").replace("\t", " ") for field in fields)
    sys.stdout.write("%s\t%s\t%s\t%s\n" % (word, RANK, NODE, text[:850]))
    sys.stdout.flush()


class Worker:
    """A process that measures: requests and answers are lines of JSON. It ends when its input does."""

    def __init__(self, script, index, *fds):
        read, write = os.pipe()
        argv = [sys.executable, os.path.join(HERE, script), str(index), str(write)] + [str(fd) for fd in fds]
        # Libraries print on standard output what they like; answers have a pipe of their own.
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=sys.stderr, pass_fds=(write,) + fds)
        os.close(write)
        self.name = "process %s" % index
        # Without a buffer: what it had read ahead, select would not tell.
        self.output = os.fdopen(read, "rb", 0)

    def ask(self, request):
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended; the end of its output says so

    def answer(self):
        """Read its next answer; None when it has ended."""
        line = self.output.readline()
        return json.loads(line.decode()) if line.endswith(b"\n") else None

    def kill(self):
        self.process.kill()
        self.process.stdin.close()
        self.output.close()
        return self.process.wait()


class Program:
    """rccl-tests: its whole output is one answer."""

    def __init__(self, argv):
        self.name = os.path.basename(argv[0])
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.output = self.process.stdout

    def answer(self):
        text = self.output.read().decode("utf-8", "replace")
        sys.stderr.write(text)
        sys.stderr.flush()
        return rccl_tests.result(text, self.process.wait())

    def kill(self):
        self.process.kill()
        self.output.close()
        return self.process.wait()


class Agent:
    """One node's part: passes requests to its workers, and always answers within the limit."""

    def __init__(self):
        self.listener = socket.socket(socket.AF_INET6 if ":" in own_address() else socket.AF_INET)
        self.listener.bind(("", 0))
        self.listener.listen(64)
        self.store = None
        self.gpus = 0
        self.workers = {}
        self.busy = None
        self.left = b""

    def open(self):
        """Find out what can measure here, and tell the loop."""
        note = ""
        if importlib.util.find_spec("torch"):
            note = self.open_torch()
        self.workers["tcp"] = self.fresh("tcp")
        self.reserve()
        tests = rccl_tests.find() if self.gpus > 1 else None
        say(
            "deep-ready",
            self.gpus,
            int(bool(tests)),
            own_address(),
            self.listener.getsockname()[1],
            self.store_port(),
            note,
        )

    def open_torch(self):
        first = Worker("all_reduce_torch.py", 0)
        with selectors.DefaultSelector() as selector:
            selector.register(first.output, selectors.EVENT_READ)
            hello = (
                first.answer()
                if selector.select(START_LIMIT_S)
                else {"error": "torch is not ready after %d s" % START_LIMIT_S}
            )
        wanted = int(os.environ.get("ORCH_DEEP_GPUS", "0"))
        if hello is None or "error" in hello or min(hello["gpus"], wanted) < 1:
            first.kill()
            return "torch ended at once" if hello is None else hello.get("error", "torch sees no GPU")
        self.gpus = min(hello["gpus"], wanted)
        self.workers["torch"] = [first] + [Worker("all_reduce_torch.py", index) for index in range(1, self.gpus)]
        return "" if self.gpus == wanted else "torch sees %d of %d GPUs" % (self.gpus, wanted)

    def fresh(self, way):
        if way == "tcp":
            return [Worker("all_reduce_tcp.py", 0, self.listener.fileno())]
        return [Worker("all_reduce_torch.py", index) for index in range(self.gpus)]

    def reserve(self):
        """Keep a free port for the next meeting of torch's processes; the others are told which."""
        if self.store:
            self.store.close()
        self.store = socket.socket(self.listener.family)
        self.store.bind(("", 0))

    def store_port(self):
        return self.store.getsockname()[1]

    def serve(self):
        """Answer requests until the input ends."""
        os.set_blocking(0, False)
        while True:
            with selectors.DefaultSelector() as selector:
                selector.register(0, selectors.EVENT_READ)
                for worker in self.busy["waiting"] if self.busy else ():
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                limit = max(0.0, self.busy["deadline"] - time.monotonic()) if self.busy else None
                events = selector.select(limit)
            for key, _ in events:
                if key.data is None and not self.read_requests():
                    return
                if key.data is not None and self.busy and key.data in self.busy["waiting"]:
                    self.hear(key.data)
            if self.busy and time.monotonic() >= self.busy["deadline"]:
                names = ", ".join(worker.name for worker in self.busy["waiting"])
                self.fail("no answer within %d s (%s)" % (self.busy["limit"], names))

    def read_requests(self):
        try:
            piece = os.read(0, 65536)
        except BlockingIOError:
            return True
        lines = (self.left + piece).split(b"\n")
        self.left = lines.pop()
        for line in lines:
            words = line.decode().split()
            if words[:1] == ["measure"]:
                self.begin(*words[1:5], groups=words[5:])
            elif words[:1] == ["cancel"] and self.busy and words[1] == self.busy["id"] and NODE in words[2:]:
                self.fail("given up, because another node failed")
        return bool(piece)

    def begin(self, ident, way, limit, size, groups):
        for group in groups:
            members = [dict(zip(("node", "address", "port"), _member(text))) for text in group.split(",")]
            ranks = [rank for rank, member in enumerate(members) if member["node"] == NODE]
            if ranks:
                break
        else:
            return
        self.busy = {
            "id": ident,
            "way": way,
            "limit": int(limit),
            "answers": [],
            "waiting": [],
            "deadline": time.monotonic() + int(limit),
        }
        if way == "rccl-tests":
            workers = [Program(rccl_tests.argv(self.gpus, int(size)))]
        elif way in self.workers:
            workers = self.workers[way]
        else:
            self.fail("this node cannot measure with %s" % way)
            return
        self.busy["waiting"] = list(workers)
        if way == "torch" and ranks[0] == 0:
            self.store.close()
        for worker in workers if way != "rccl-tests" else ():
            worker.ask(
                {
                    "id": ident,
                    "limit": int(limit),
                    "bytes": int(size),
                    "members": members,
                    "rank": ranks[0],
                    "gpus": self.gpus,
                }
            )

    def hear(self, worker):
        answer = worker.answer()
        if answer is None:
            self.busy["waiting"].remove(worker)
            self.fail("%s ended (%s)" % (worker.name, _ending(worker.kill())))
            return
        if "error" in answer:
            self.fail(answer["error"])
            return
        if "gpus" in answer:
            return  # the first word of a worker that replaces another
        self.busy["answers"].append(answer)
        self.busy["waiting"].remove(worker)
        if not self.busy["waiting"]:
            first = max(self.busy["answers"], key=lambda one: one["mbps"])
            self.tell("ok", first["bytes"], first["microseconds"], first["mbps"], first["wrong"], first.get("note", ""))

    def tell(self, state, size, microseconds, mbps, wrong, note):
        busy, self.busy = self.busy, None
        if busy["way"] == "torch":
            self.reserve()
        say("deep", busy["id"], state, busy["way"], size, microseconds, mbps, wrong, self.store_port(), note)

    def fail(self, reason):
        """Answer with an error. Workers that may hang in the middle of it are replaced."""
        way = self.busy["way"]
        if way in self.workers:
            for worker in self.workers[way]:
                worker.kill()
            self.workers[way] = self.fresh(way)
        else:
            for worker in self.busy["waiting"]:
                worker.kill()
        self.tell("error", 0, 0, 0, 0, reason)

    def close(self):
        for worker in [one for some in self.workers.values() for one in some] + (
            self.busy["waiting"] if self.busy else []
        ):
            worker.kill()


def _member(text):
    node, _, place = text.partition("=")
    address, _, port = place.rpartition(":")
    return node, address, int(port)


def _ending(status):
    return "signal %d" % -status if status < 0 else "exit status %d" % status


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    agent = Agent()
    try:
        agent.open()
        agent.serve()
    finally:
        agent.close()


if __name__ == "__main__":
    main()
